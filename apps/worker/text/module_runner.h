// A module of any kind as what computes batches: its cache holds the tokens of the texts, and each
// row computes its whole text again. Data path: engine -> [here] -> graph/models/text_model.h. One
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decoder/cache/page_pool.h"
#include "decoder/decode/batch.h"
#include "graph/models/text_model.h"

namespace dslaunch::worker {

class ModuleRunner final : public decoder::StepRunner {
  public:
    // MODEL must outlive this. A text has as many positions as PAGES hold; the model sees the last
    // ones.
    ModuleRunner(graph::TextModel& model, int64_t pages)
        : model_(model), tokens_(static_cast<size_t>(pages * decoder::kPagePositions)) {}

    [[nodiscard]] int64_t vocabulary() const override { return model_.vocab(); }
    [[nodiscard]] int64_t context() const override { return std::ssize(tokens_); }
    [[nodiscard]] int64_t pages() const override {
        return std::ssize(tokens_) / decoder::kPagePositions;
    }
    [[nodiscard]] int64_t rows_max() const override { return 4096; }
    [[nodiscard]] std::span<float> run(const decoder::Batch& batch) override;

  private:
    graph::TextModel& model_;
    std::vector<int32_t> tokens_;  // by page and position
    std::vector<float> logits_;
};

}  // namespace dslaunch::worker
