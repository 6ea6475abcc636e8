#include "runtime/save/smaller_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/bytes.h"
#include "base/text/torch_reason.h"
#include "runtime/save/save_weights.h"

namespace dslaunch::runtime {

namespace {

// Returns TENSOR without what MASK, of bools, hides in dimension DIM.
at::Tensor without(const at::Tensor& tensor, const at::Tensor& mask, int64_t dim) {
    const at::Tensor bits = mask.reshape({-1});
    const at::Tensor kept = bits.repeat_interleave(tensor.size(dim) / bits.numel()).nonzero();
    return tensor.index_select(dim, kept.view({-1}).to(tensor.device())).contiguous();
}

// A scope in which the tensors of a model are smaller.
class SmallerScope {
  public:
    SmallerScope(graph::Model& model, const SmallerWeights& smaller) {
        for (const graph::Shrink& shrink : smaller.shrinks) {
            const at::Tensor mask = shrink.mask.mask(smaller.source_of(shrink.mask));
            for (const graph::Cut& cut : shrink.cuts) {
                at::Tensor tensor = cut.is_buffer ? model.buffers()[cut.index].tensor
                                                  : model.parameters()[cut.index].tensor;
                before_.emplace(tensor.unsafeGetTensorImpl(), std::pair{tensor, tensor.data()});
                tensor.set_data(without(tensor.detach(), mask, cut.dim));
            }
        }
    }
    SmallerScope(const SmallerScope&) = delete;
    SmallerScope& operator=(const SmallerScope&) = delete;
    ~SmallerScope() {
        for (auto& [key, pair] : before_) pair.first.set_data(pair.second);
    }

    // Returns the bytes of the changed tensors before.
    [[nodiscard]] Bytes bytes_before() const {
        Bytes bytes;
        for (const auto& [key, pair] : before_)
            bytes += Bytes{static_cast<int64_t>(pair.second.nbytes())};
        return bytes;
    }
    [[nodiscard]] Bytes bytes_now() const {
        Bytes bytes;
        for (const auto& [key, pair] : before_)
            bytes += Bytes{static_cast<int64_t>(pair.first.nbytes())};
        return bytes;
    }

  private:
    std::map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> before_;
};

// Returns why the model does not compute LOSS with its tensors as they are now; empty if it does.
std::string fault_of(const SmallerWeights& smaller, double loss) {
    constexpr double kTolerance = 1e-3;
    try {
        const double now = smaller.loss();
        if (std::abs(now - loss) <= kTolerance * std::max(1.0, std::abs(loss))) return "";
        return fmt::format("its loss would be {:.6g}, not {:.6g}", now, loss);
    } catch (const std::exception& error) {
        return torch_reason(error);
    }
}

}  // namespace

std::string write_smaller(graph::Model& model, const SmallerWeights& smaller,
                          const std::string& folder) {
    const at::NoGradGuard no_grad;
    if (!model.views().empty())
        return fmt::format("{}: not written, because tensors of the model share memory", folder);
    const double loss = smaller.loss ? smaller.loss() : 0;
    const SmallerScope scope(model, smaller);
    const std::string fault =
        smaller.loss ? fault_of(smaller, loss) : "there is no batch to check it with";
    WeightWriter(model, folder, {}).finish();
    std::string text =
        fmt::format("{}: pruned weights without their zeros, {} instead of {}", folder,
                    to_text(scope.bytes_now()), to_text(scope.bytes_before()));
    if (fault.empty()) return text;
    std::filesystem::remove(folder + "/model.pt");
    return text + fmt::format(
                      "; there is no model.pt of them, because the model's code does not "
                      "fit them: {}",
                      fault);
}

}  // namespace dslaunch::runtime
