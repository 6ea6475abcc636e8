#include "graph/lower/cpu_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <tuple>

namespace dslaunch::graph {

namespace {

// The number of elements of an operand that are widened at once: 4 MiB in fp32.
constexpr int64_t kBlockNumel = int64_t{1} << 20;

std::atomic<bool> widens_bf16 = false, widens_fp16 = false;

bool widens(const at::Tensor& tensor) {
    return (tensor.scalar_type() == at::kBFloat16 && widens_bf16) ||
           (tensor.scalar_type() == at::kHalf && widens_fp16);
}

at::Tensor wide(const at::Tensor& tensor) {
    return tensor.to(at::kFloat);
}

std::optional<at::Tensor> wide(const std::optional<at::Tensor>& tensor) {
    return tensor && widens(*tensor) ? wide(*tensor) : tensor;
}

// The addend of a product: the result is BETA * SELF + ALPHA * product. SELF has the result's
// shape.
struct Addend {
    at::Tensor self;
    at::Scalar beta = 0;
    at::Scalar alpha = 1;
};

// Writes SUMS + ADDEND into a part of RESULT. The part begins at index BEGIN of DIMENSION and has
// the size of SUMS.
void finish(const at::Tensor& result, const std::optional<Addend>& addend, int64_t dimension,
            int64_t begin, at::Tensor sums) {
    const int64_t numel = sums.size(dimension);
    if (addend) {
        if (!addend->alpha.equal(1)) sums.mul_(addend->alpha);
        // Like LibTorch, this does not read SELF if BETA is 0, so that NaNs in it have no effect.
        if (!addend->beta.equal(0))
            sums.add_(addend->self.narrow(dimension, begin, numel), addend->beta);
    }
    result.narrow(dimension, begin, numel).copy_(sums);
}

// Calls BLOCK(begin, numel) for consecutive blocks of the range [0, SIZE). Each index of the range
// has WIDTH elements; a block has at most kBlockNumel elements, or a single index.
template <typename F>
void in_blocks(int64_t size, int64_t width, const F& block) {
    const int64_t step = std::max<int64_t>(1, kBlockNumel / std::max<int64_t>(1, width));
    for (int64_t begin = 0; begin < size; begin += step) block(begin, std::min(step, size - begin));
}

// Computes [m, k] x [k, n], in blocks along the largest of the three sizes.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b,
                        const std::optional<Addend>& addend) {
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    at::Tensor result = at::empty({m, n}, a.options());
    if (k > std::max(m, n)) {
        at::Tensor sums;
        in_blocks(k, std::max(m, n), [&](int64_t begin, int64_t numel) {
            const at::Tensor left = wide(a.narrow(1, begin, numel));
            const at::Tensor right = wide(b.narrow(0, begin, numel));
            if (begin == 0)
                sums = at::cpu::mm(left, right);
            else
                at::cpu::addmm_(sums, left, right);
        });
        finish(result, addend, 0, 0, sums);
    } else if (n >= m) {
        const at::Tensor left = wide(a);
        in_blocks(n, k, [&](int64_t begin, int64_t numel) {
            finish(result, addend, 1, begin, at::cpu::mm(left, wide(b.narrow(1, begin, numel))));
        });
    } else {
        const at::Tensor right = wide(b);
        in_blocks(m, k, [&](int64_t begin, int64_t numel) {
            finish(result, addend, 0, begin, at::cpu::mm(wide(a.narrow(0, begin, numel)), right));
        });
    }
    return result;
}

// Computes [batches, m, k] x [batches, k, n], in blocks of batches.
at::Tensor wide_products(const at::Tensor& a, const at::Tensor& b,
                         const std::optional<Addend>& addend) {
    at::Tensor result = at::empty({a.size(0), a.size(1), b.size(2)}, a.options());
    const int64_t width = std::max(a.size(1), b.size(2)) * std::max(a.size(2), b.size(2));
    in_blocks(a.size(0), width, [&](int64_t begin, int64_t numel) {
        finish(result, addend, 0, begin,
               at::cpu::bmm(wide(a.narrow(0, begin, numel)), wide(b.narrow(0, begin, numel))));
    });
    return result;
}

bool are_widened(const at::Tensor& a, const at::Tensor& b) {
    return widens(a) && a.scalar_type() == b.scalar_type() && a.numel() > 0 && b.numel() > 0;
}

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
    if (!are_widened(a, b) || a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0))
        return at::cpu::mm(a, b);
    return wide_product(a, b, {});
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                 const at::Scalar& beta, const at::Scalar& alpha) {
    if (!are_widened(a, b) || self.scalar_type() != a.scalar_type() || a.dim() != 2 ||
        b.dim() != 2 || a.size(1) != b.size(0))
        return at::cpu::addmm(self, a, b, beta, alpha);
    return wide_product(a, b, Addend{self.expand({a.size(0), b.size(1)}), beta, alpha});
}

bool are_batches(const at::Tensor& a, const at::Tensor& b) {
    return are_widened(a, b) && a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) &&
           a.size(2) == b.size(1);
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
    return are_batches(a, b) ? wide_products(a, b, {}) : at::cpu::bmm(a, b);
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                   const at::Scalar& beta, const at::Scalar& alpha) {
    if (!are_batches(a, b) || self.scalar_type() != a.scalar_type())
        return at::cpu::baddbmm(self, a, b, beta, alpha);
    return wide_products(a, b, Addend{self.expand({a.size(0), a.size(1), b.size(2)}), beta, alpha});
}

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value, double dropout, bool causal,
                                             const std::optional<at::Tensor>& mask,
                                             std::optional<double> scale) {
    if (!widens(query))
        return at::cpu::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout,
                                                                    causal, mask, scale);
    auto [result, sums] = at::cpu::_scaled_dot_product_flash_attention_for_cpu(
        wide(query), wide(key), wide(value), dropout, causal, wide(mask), scale);
    return {result.to(query.scalar_type()), sums};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& result, const at::Tensor& sums, double dropout,
    bool causal, const std::optional<at::Tensor>& mask, std::optional<double> scale) {
    if (!widens(query))
        return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, query, key, value, result, sums, dropout, causal, mask, scale);
    auto [of_query, of_key, of_value] =
        at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
            wide(gradient), wide(query), wide(key), wide(value), wide(result), sums, dropout,
            causal, wide(mask), scale);
    const at::ScalarType type = query.scalar_type();
    return {of_query.to(type), of_key.to(type), of_value.to(type)};
}

[[maybe_unused]] bool has(const char* capability) {
    const auto all = at::cpu::get_cpu_capabilities();
    const auto found = all.find(capability);
    return found != all.end() && found->second.isBool() && found->second.toBool();
}

// Operators for the scope ShapesOnly. They compute nothing and return zeros of the right shape.
namespace shapes {

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
    return at::zeros({a.size(0), b.size(1)}, a.options());
}

at::Tensor addmm(const at::Tensor&, const at::Tensor& a, const at::Tensor& b, const at::Scalar&,
                 const at::Scalar&) {
    return shapes::mm(a, b);
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
    return at::zeros({a.size(0), a.size(1), b.size(2)}, a.options());
}

at::Tensor baddbmm(const at::Tensor&, const at::Tensor& a, const at::Tensor& b, const at::Scalar&,
                   const at::Scalar&) {
    return shapes::bmm(a, b);
}

// Returns zeros of the shape [.., T, v] for inputs [.., T, d], [.., S, d] and [.., S, v]. Like the
// result of LibTorch's kernel, they are stored with the heads of a position next to each other.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor&,
                                             const at::Tensor& value, double, bool,
                                             const std::optional<at::Tensor>&,
                                             std::optional<double>) {
    const int64_t rows = query.size(0), heads = query.size(1), positions = query.size(2);
    const at::ScalarType sums = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return {at::zeros({rows, positions, heads, value.size(3)}, query.options()).transpose(1, 2),
            at::zeros({rows, positions, heads}, query.options().dtype(sums)).transpose(1, 2)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor&, const at::Tensor&, double, bool, const std::optional<at::Tensor>&,
    std::optional<double>) {
    return {at::zeros_like(query), at::zeros_like(key), at::zeros_like(value)};
}

}  // namespace shapes

}  // namespace

// Kernels that replace LibTorch's own. The destructor restores the kernels that were used before.
// If several such objects exist, the latest one is used.
class CpuKernels {
  public:
    // KERNELS: mm, addmm, bmm, baddbmm, attention and its backward, in this order.
    template <typename... Kernel>
    explicit CpuKernels(Kernel*... kernels) {
        constexpr const char* kNames[] = {"mm",
                                          "addmm",
                                          "bmm",
                                          "baddbmm",
                                          "_scaled_dot_product_flash_attention_for_cpu",
                                          "_scaled_dot_product_flash_attention_for_cpu_backward"};
        Silence silence;
        const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
        size_t next = 0;
        (library_.impl(kNames[next++], kernels), ...);
    }

  private:
    // A handler that suppresses the warning that LibTorch gives for every kernel that is replaced.
    class Silence : public c10::WarningHandler {
        void process(const c10::Warning&) override {}
    };

    torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__,
                            __LINE__};
};

WideProducts::WideProducts(bool bf16, bool fp16)
    : kernels_(
          std::make_unique<CpuKernels>(mm, addmm, bmm, baddbmm, attention, attention_backward)),
      was_bf16_wide_(widens_bf16.exchange(bf16)),
      was_fp16_wide_(widens_fp16.exchange(fp16)) {}

WideProducts::~WideProducts() {
    widens_bf16 = was_bf16_wide_;
    widens_fp16 = was_fp16_wide_;
}

ShapesOnly::ShapesOnly() {
    use_wide_products();  // first, so that the kernels set below are used
    kernels_ = std::make_unique<CpuKernels>(shapes::mm, shapes::addmm, shapes::bmm, shapes::baddbmm,
                                            shapes::attention, shapes::attention_backward);
}

ShapesOnly::~ShapesOnly() = default;

void use_wide_products() {
#if defined(__x86_64__)
    // oneDNN itself computes 16-bit products under these conditions.
    static const bool bf16 = has("avx512_bw") && has("avx512_vl") && has("avx512_dq");
    static const bool fp16 = has("avx512_fp16");
    // Never destroyed: other threads may still compute while the process ends.
    static const WideProducts* const products =
        bf16 && fp16 ? nullptr : new WideProducts(!bf16, !fp16);
    static_cast<void>(products);
#endif
}

}  // namespace dslaunch::graph
