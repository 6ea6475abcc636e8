#include "worker/text/module_runner.h"

#include <ATen/core/Tensor.h>

namespace dslaunch::worker {

std::span<float> ModuleRunner::run(const decoder::Batch& batch) {
    const auto place = [&](const decoder::BatchRow& row, int32_t position) -> int32_t& {
        const std::vector<int32_t>& pages = batch.sequences[row.sequence].pages;
        const int64_t page = pages[static_cast<size_t>(position / decoder::kPagePositions)];
        return tokens_[page * decoder::kPagePositions + position % decoder::kPagePositions];
    };
    logits_.clear();
    for (const decoder::BatchRow& row : batch.rows) {
        place(row, row.position) = row.token;
        if (!row.wants_logits) continue;
        std::vector<int64_t> text;
        for (int32_t position = 0; position <= row.position; ++position)
            text.push_back(place(row, position));
        const at::Tensor logits = model_.next_logits(text).contiguous();
        const float* numbers = logits.const_data_ptr<float>();
        logits_.insert(logits_.end(), numbers, numbers + logits.numel());
    }
    return logits_;
}

}  // namespace dslaunch::worker
