#include "runtime/save/compressed_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "graph/compress/compression_operators.h"
#include "graph/memory/memory_order.h"
#include "runtime/save/smaller_weights.h"

namespace dslaunch::runtime {

CompressedWeights::CompressedWeights(graph::Model& model, CompressionEnd end, std::vector<int> here,
                                     std::string folder, std::unique_ptr<WeightSink> sink)
    : model_(model),
      end_(std::move(end)),
      here_(std::move(here)),
      folder_(std::move(folder)),
      sink_(std::move(sink)) {
    for (const graph::CompressedParameter& made : *end_.parameters) {
        made_of_[made.parameter] = &made;
        for (const graph::WeightMask& mask : made.masks)
            if (mask.is_learned) scores_[mask.source];
    }
}

bool CompressedWeights::is_ready(const graph::CompressedParameter& made) const {
    return std::ranges::all_of(made.masks, [&](const graph::WeightMask& mask) {
        return !mask.is_learned || scores_.at(mask.source).defined();
    });
}

at::Tensor CompressedWeights::source_of(const graph::WeightMask& mask) const {
    return mask.is_learned ? scores_.at(mask.source)
                           : model_.buffers()[mask.source].tensor.to(at::kCPU);
}

// Puts VALUES, which have the shape of the parameter of MADE, as they are in memory.
void CompressedWeights::pass_on(const graph::CompressedParameter& made, const at::Tensor& values) {
    const uint64_t seed = graph::rounding_seed(end_.seed, end_.updates, made.parameter);
    const at::Tensor read =
        made.read(values, end_.updates, seed, [this](const auto& mask) { return source_of(mask); });
    at::Tensor stored = at::empty_like(values);
    stored.copy_(read);
    sink_->put(made.parameter,
               {stored.const_data_ptr<float>(), static_cast<size_t>(stored.numel())});
}

void CompressedWeights::take(const graph::CompressedParameter& made, const at::Tensor& values) {
    if (is_ready(made)) return pass_on(made, values);
    waiting_[made.parameter] = values.clone();
}

void CompressedWeights::put(int parameter, std::span<const float> values) {
    const at::NoGradGuard no_grad;
    const at::Tensor& known = model_.parameters()[parameter].tensor;
    const std::vector<int64_t> strides = graph::strides_in_memory(known);
    auto* const data = const_cast<float*>(values.data());
    const at::Tensor brought = strides.empty()
                                   ? at::from_blob(data, known.sizes(), at::kFloat)
                                   : at::from_blob(data, known.sizes(), strides, at::kFloat);
    if (const auto scores = scores_.find(parameter); scores != scores_.end()) {
        scores->second = brought.clone();
        sink_->put(parameter, values);
        std::erase_if(waiting_, [this](const auto& entry) {
            const graph::CompressedParameter& made = *made_of_.at(entry.first);
            if (!is_ready(made)) return false;
            pass_on(made, entry.second);
            return true;
        });
        return;
    }
    const auto found = made_of_.find(parameter);
    if (found == made_of_.end()) return sink_->put(parameter, values);
    take(*found->second, brought);
}

void CompressedWeights::finish() {
    const at::NoGradGuard no_grad;
    for (const int parameter : here_) {
        const at::Tensor values = graph::in_memory_order(
            model_.parameters()[parameter].tensor.detach().to(at::kCPU, at::kFloat));
        put(parameter, {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
    }
    DSL_CHECK(waiting_.empty(), "{} masked weights have no scores", waiting_.size());
    sink_->finish();
    if (end_.shrinks.empty()) return;
    const SmallerWeights smaller{
        end_.shrinks, [this](const graph::WeightMask& mask) { return source_of(mask); }, end_.loss};
    log_info("train", "{}", write_smaller(model_, smaller, folder_ + "/" + kSmallerFolder));
}

}  // namespace dslaunch::runtime
