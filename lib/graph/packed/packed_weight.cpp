#include "graph/packed/packed_weight.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kernels/matrix/packed_matrix.h"

namespace dslaunch::graph {

namespace {

kernels::MatrixShape panel_of(const kernels::MatrixShape& shape, int64_t panel) {
    const int64_t first = panel * kernels::kPanelOutputs;
    return {shape.form, std::min(kernels::kPanelOutputs, shape.out - first), shape.in, shape.group};
}

int64_t panel_count(const kernels::MatrixShape& shape) {
    return (shape.out + kernels::kPanelOutputs - 1) / kernels::kPanelOutputs;
}

// Returns the bytes of a panel; the last panel is padded.
int64_t bytes_of_panel(const kernels::MatrixShape& shape) {
    return kernels::matrix_bytes({shape.form, kernels::kPanelOutputs, shape.in, shape.group});
}

}  // namespace

PackedWeight::PackedWeight(at::Tensor weight, bool transposed, kernels::MatrixForm form,
                           at::ScalarType element)
    : source_(std::move(weight)),
      is_transposed_(transposed),
      element_(element),
      shape_(kernels::matrix_shape(form, source_.size(transposed ? 1 : 0),
                                   source_.size(transposed ? 0 : 1))),
      panels_(panel_count(shape_)),
      panel_bytes_(bytes_of_panel(shape_)) {
    kernels::check_shape(shape_);
    DSL_CHECK(kernels::is_packed(form) && panel_bytes_ % sizeof(float) == 0,
              "a packed weight cannot have panels of {} bytes in the form {}", panel_bytes_,
              kernels::matrix_form_name(form));
}

int64_t PackedWeight::numel() const {
    return panels_ * panel_bytes_ / static_cast<int64_t>(c10::elementSize(element_));
}

at::Tensor PackedWeight::placeholder() const {
    const auto bytes = static_cast<size_t>(panels_ * panel_bytes_);
    void* const zeros =
        ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED)
        fail(ExitCode::kSetup, "cannot reserve {} bytes of address space for a packed weight",
             bytes);
    return at::from_blob(
        zeros, {numel()}, [bytes](void* memory) { ::munmap(memory, bytes); },
        at::TensorOptions().dtype(element_));
}

void PackedWeight::make_panel(int64_t panel, std::byte* into) const {
    const kernels::MatrixShape shape = panel_of(shape_, panel);
    const int64_t first = panel * kernels::kPanelOutputs;
    at::Tensor rows = source_.detach().narrow(is_transposed_ ? 1 : 0, first, shape.out);
    if (is_transposed_) rows = rows.t();
    const bool bf16 = rows.scalar_type() == at::kBFloat16;
    const DType dtype = bf16                              ? DType::kBF16
                        : rows.scalar_type() == at::kHalf ? DType::kF16
                                                          : DType::kF32;
    if (dtype == DType::kF32) rows = rows.to(at::kFloat);
    rows = rows.contiguous();
    kernels::ThreadTeam alone(1);
    kernels::quantize(shape, {rows.const_data_ptr(), dtype, {0, shape.out}},
                      {into, static_cast<size_t>(panel_bytes_)}, alone);
}

void PackedWeight::read(const Range& elements, std::byte* into) const {
    const auto size = static_cast<int64_t>(c10::elementSize(element_));
    const Range bytes{elements.begin * size, elements.numel * size};
    const int64_t end = (bytes.end() + panel_bytes_ - 1) / panel_bytes_;
    at::parallel_for(bytes.begin / panel_bytes_, end, 1, [&](int64_t first, int64_t last) {
        const at::NoGradGuard no_grad;
        std::vector<std::byte> made(static_cast<size_t>(panel_bytes_));
        for (int64_t panel = first; panel < last; ++panel) {
            make_panel(panel, made.data());
            const int64_t begin = panel * panel_bytes_;
            const Range both = intersect(bytes, {begin, panel_bytes_});
            std::memcpy(into + (both.begin - bytes.begin), made.data() + (both.begin - begin),
                        static_cast<size_t>(both.numel));
        }
    });
}

at::Tensor PackedWeight::rounded() const {
    const at::NoGradGuard no_grad;
    std::vector<float> elements(static_cast<size_t>(panels_ * panel_bytes_) / sizeof(float));
    read({0, numel()}, reinterpret_cast<std::byte*>(elements.data()));
    const at::Tensor dense = at::empty({shape_.out, shape_.in}, at::kFloat);
    unpack(at::from_blob(elements.data(), {std::ssize(elements)}, at::kFloat), shape_, dense);
    return is_transposed_ ? dense.t().contiguous() : dense;
}

namespace {

// Runs dslaunch::unpack on the host. FORM is a kernels::MatrixForm.
void unpack_on_host(const at::Tensor& packed, int64_t form, int64_t out, int64_t in,
                    const at::Tensor& dense) {
    const kernels::MatrixShape shape =
        kernels::matrix_shape(static_cast<kernels::MatrixForm>(form), out, in);
    const int64_t panel_bytes = bytes_of_panel(shape);
    const auto* const data = static_cast<const std::byte*>(packed.const_data_ptr());
    DSL_CHECK(packed.is_cpu() && packed.nbytes() == static_cast<size_t>(panel_count(shape)) *
                                                        static_cast<size_t>(panel_bytes),
              "{} bytes are not the size of a packed weight of shape [{}, {}]", packed.nbytes(),
              shape.out, shape.in);
    at::parallel_for(0, panel_count(shape), 1, [&](int64_t first, int64_t last) {
        const at::NoGradGuard no_grad;
        const bool direct = dense.scalar_type() == at::kFloat;
        std::vector<float> rows(direct ? 0
                                       : static_cast<size_t>(kernels::kPanelOutputs * shape.in));
        for (int64_t panel = first; panel < last; ++panel) {
            const kernels::MatrixShape part = panel_of(shape, panel);
            const at::Tensor into = dense.narrow(0, panel * kernels::kPanelOutputs, part.out);
            float* const to = direct ? into.data_ptr<float>() : rows.data();
            kernels::dequantize({part, data + panel * panel_bytes}, {0, part.out}, to);
            if (!direct) into.copy_(at::from_blob(to, into.sizes(), at::kFloat));
        }
    });
}

using Unpack = void(const at::Tensor&, int64_t, int64_t, int64_t, const at::Tensor&);

// Returns an operator registered with LibTorch, so that a device's plugin can supply its own
// implementation.
c10::TypedOperatorHandle<Unpack> unpack_operator() {
    static const torch::Library library = [] {
        torch::Library made(torch::Library::FRAGMENT, "dslaunch", std::nullopt, __FILE__, __LINE__);
        made.def(
            "unpack(Tensor packed, int form, int outputs, int inputs, Tensor(a!) dense) -> ()");
        made.impl("unpack", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpack_on_host)));
        made.impl("unpack",
                  torch::dispatch(c10::DispatchKey::Meta, [](const at::Tensor&, int64_t, int64_t,
                                                             int64_t, const at::Tensor&) {}));
        return made;
    }();
    static const auto found =
        c10::Dispatcher::singleton().findSchemaOrThrow("dslaunch::unpack", "").typed<Unpack>();
    return found;
}

}  // namespace

void unpack(const at::Tensor& packed, const kernels::MatrixShape& shape, const at::Tensor& dense) {
    const at::AutoDispatchBelowAutograd below;
    unpack_operator().call(packed, static_cast<int64_t>(shape.form), shape.out, shape.in, dense);
}

}  // namespace dslaunch::graph
