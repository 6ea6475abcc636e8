// The targets of a batch that count in the loss. A loss that is a mean over targets, which a config
// names or a model computes itself, ends in an operator whose targets follow from forward's
// arguments alone, so that they can be counted before the model runs. Data path: loss.cpp appends
// the loss -> [here] -> the training loop weighs micro batches. No shared state; const: any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "config/run/run_config.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

class TargetCount {
  public:
    struct Parts;
    explicit TargetCount(std::unique_ptr<const Parts> parts);
    TargetCount(const TargetCount&) = delete;
    TargetCount& operator=(const TargetCount&) = delete;
    ~TargetCount();

    // Returns the number of BATCH's targets that count: the mean's divisor, and 0 if BATCH has no
    // target. BATCH is forward's arguments on the CPU. A model may divide by a sum of weights,
    // which need not be whole, or by another number, even below 0, if it takes the mean itself.
    // Throws Error{kInput} if a loss that was summed up has no such count.
    [[nodiscard]] double of(const std::vector<IValue>& batch) const;

    // Returns false if the count follows from the sizes of the batch. TOKENS: arguments hold no
    // negative numbers, as in a token file whose type has no sign.
    [[nodiscard]] bool varies(bool tokens) const;

  private:
    std::unique_ptr<const Parts> parts_;
};

// Finds out which targets count in LOWERED's loss and sets LOWERED.targets, or why_no_targets. With
// LossMean::kToken the loss becomes the sum over them; if it is a quotient of two sums, it is 0 in
// place of 0/0. REQUIRES: append_loss has been called. Throws Error{kConfig} if LOSS asks for a
// mean over tokens and the targets are not known, naming the operator.
void find_targets(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
