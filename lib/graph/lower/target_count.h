// The targets of a batch that count in the loss. A loss may be a mean over targets, either named in
// the config or computed by the model. It then ends in an operator whose targets depend only on
// forward's arguments, so the targets can be counted before the model runs. Data path: loss.cpp
// appends the loss -> [here] -> the training loop weights micro batches. No shared state; const:
// any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "config/run/run_config.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// A function of one lowered graph that counts the targets in a batch.
class TargetCount {
  public:
    struct Parts;
    explicit TargetCount(std::unique_ptr<const Parts> parts);
    TargetCount(const TargetCount&) = delete;
    TargetCount& operator=(const TargetCount&) = delete;
    ~TargetCount();

    // Returns the number of targets in BATCH that are not ignored; 0 if there are none. The mean
    // divides by this number. BATCH: forward's arguments on the CPU. If the model itself divides by
    // a sum of weights, the result is this sum, which may have a fraction or even be negative.
    // Throws Error{kInput} if the loss was changed to a sum and BATCH's targets cannot be counted.
    [[nodiscard]] double of(const std::vector<IValue>& batch) const;

    // Returns true if batches of the same sizes can have different counts. TOKENS is true if no
    // argument can be negative, as in a token file whose type is unsigned.
    [[nodiscard]] bool varies(bool tokens) const;

  private:
    std::unique_ptr<const Parts> parts_;
};

// Finds out which targets count in LOWERED's loss, and sets LOWERED.targets or why_no_targets. With
// LossMean::kToken the loss becomes the sum over the targets. Otherwise a loss that is a quotient
// of two sums becomes 0 instead of 0/0. REQUIRES: append_loss() has been called. Throws
// Error{kConfig}, naming the operator, if LOSS asks for a mean over tokens but the targets are not
// known.
void find_targets(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
