#include "runtime/save/compressed_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/compress/compression_operators.h"
#include "graph/memory/memory_order.h"
#include "runtime/save/smaller_weights.h"

namespace dslaunch::runtime {

std::string describe_compressed(const CompressionEnd& end) {
    std::map<int64_t, size_t> of_bits;   // numbers of layers, by bits
    std::map<int64_t, size_t> of_begin;  // numbers of masks that are not on yet, by offset
    size_t mixed = 0, masked = 0;
    for (const graph::CompressedParameter& made : *end.parameters) {
        if (made.is_rounded) {
            const config::BitState state = config::bits_after(made.rounding.schedule, end.updates);
            ++of_bits[state.bits];
            mixed += state.unrounded > 0 ? 1 : 0;
        }
        for (const graph::WeightMask& mask : made.masks)
            mask.is_on(end.updates) ? ++masked : ++of_begin[mask.offset];
    }
    std::vector<std::string> parts;
    for (const auto& [bits, count] : of_bits)
        parts.push_back(bits == 0 ? fmt::format("{} not rounded yet", count)
                                  : fmt::format("{} in {}", count, counted(bits, "bit")));
    if (mixed > 0)
        parts.push_back(fmt::format("{} with a mix of rounded and unrounded values", mixed));
    if (masked > 0) parts.push_back(fmt::format("{} masked", masked));
    for (const auto& [offset, count] : of_begin)
        parts.push_back(fmt::format("{} not masked yet (schedule_offset {})", count, offset));
    return fmt::format("compressed weights after {}: {}", counted(end.updates, "update"),
                       join(parts, ", "));
}

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
    return mask.is_learned ? scores_.at(mask.source).to(end_.parameter_dtype)
                           : model_.buffers()[mask.source].tensor.to(at::kCPU);
}

// Rounds and masks VALUES in the same way as the layers that read the parameter, and puts the
// result into the sink. VALUES have the shape and strides of the parameter.
void CompressedWeights::pass_on(const graph::CompressedParameter& made, const at::Tensor& values) {
    const uint64_t seed = graph::rounding_seed(end_.seed, end_.updates, made.parameter);
    // Layers round values in the dtype of the parameters. If a weight is not rounded, its fp32
    // values are kept.
    const bool rounds =
        made.is_rounded && config::bits_after(made.rounding.schedule, end_.updates).bits > 0;
    const at::Tensor read =
        made.read(rounds ? values.to(end_.parameter_dtype) : values, end_.updates, seed,
                  [this](const auto& mask) { return source_of(mask); });
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
    const at::Tensor brought = graph::as_in_memory(values.data(), known);
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
    log_info("train", "{}", describe_compressed(end_));
    write_shrunk();
}

// Writes the smaller weights, without the parts that masks hide. Masks whose schedule has not begun
// are ignored.
void CompressedWeights::write_shrunk() {
    if (end_.shrinks.empty()) return;
    const std::string folder = folder_ + "/" + kSmallerFolder;
    const int64_t begin = end_.shrinks.front().mask.offset;
    std::erase_if(end_.shrinks,
                  [this](const graph::Shrink& shrink) { return !shrink.mask.is_on(end_.updates); });
    if (end_.shrinks.empty()) {
        log_warn("train",
                 "{}: not written, because pruning begins after {}, and the run ended "
                 "after {}",
                 folder, counted(begin, "update"), counted(end_.updates, "update"));
        return;
    }
    const SmallerWeights smaller{end_.shrinks,
                                 [this](const graph::WeightMask& mask) { return source_of(mask); },
                                 end_.loss, end_.tolerance};
    log_info("train", "{}", write_smaller(model_, smaller, folder));
}

}  // namespace dslaunch::runtime
