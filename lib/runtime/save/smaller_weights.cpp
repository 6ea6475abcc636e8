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

// Returns TENSOR without the slices in dimension DIM for which MASK is false.
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

    // Returns the bytes of the changed tensors before the change.
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

// A loss, or the reason why there is no loss.
struct Outcome {
    double loss = 0;
    std::string fault;
};

Outcome outcome_of(const SmallerWeights& smaller) {
    if (!smaller.loss) return {0, "there is no batch to compute a loss with"};
    try {
        const double loss = smaller.loss();
        if (std::isfinite(loss)) return {loss, ""};
        return {loss, fmt::format("the loss of the batch for this check is {}", loss)};
    } catch (const std::exception& error) {
        return {0, torch_reason(error)};
    }
}

}  // namespace

std::string write_smaller(graph::Model& model, const SmallerWeights& smaller,
                          const std::string& folder) {
    const at::NoGradGuard no_grad;
    if (!model.views().empty())
        return fmt::format("{}: not written, because tensors of the model share memory", folder);
    const Outcome before = outcome_of(smaller);
    const SmallerScope scope(model, smaller);
    const Outcome now = before.fault.empty() ? outcome_of(smaller) : before;
    const std::string& fault = now.fault;
    const double difference = std::abs(now.loss - before.loss);
    if (fault.empty() && difference > smaller.tolerance * std::max(1.0, std::abs(before.loss)))
        return fmt::format(
            "{}: not written, because the loss without the masked weights would be {:.6g}, not "
            "{:.6g}: a zero becomes another value in the next module, or related_modules name "
            "the wrong modules",
            folder, now.loss, before.loss);
    WeightWriter(model, folder, {}).finish();
    std::string text =
        fmt::format("{}: saved the pruned weights without their zeros: {} instead of {}", folder,
                    to_text(scope.bytes_now()), to_text(scope.bytes_before()));
    if (fault.empty()) return text;
    std::filesystem::remove(folder + "/model.pt");
    return text + fmt::format(
                      "; no model.pt was saved, because the model does not compute a loss with the "
                      "smaller weights: {}",
                      fault);
}

}  // namespace dslaunch::runtime
