// The losses and rewards of a step's micro steps on one rank. Data path: segment runner -> [here]
// -> trainer. Thread: the compute lane's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graph/lower/reward_means.h"

namespace dslaunch::runtime {

// Collects losses and rewards; see the top of this file.
class StepLosses {
  public:
    // STOPS_ON_NONFINITE is true if a loss that is not finite ends the run. KNOWS_TARGETS is true
    // if it is known which targets of a batch count. Otherwise the error for a NaN names a mean
    // over no targets as a possible cause.
    StepLosses(bool stops_on_nonfinite, bool knows_targets)
        : stops_on_nonfinite_(stops_on_nonfinite), knows_targets_(knows_targets) {}

    // Begins STEP, counted from 0. EMPTY marks the micro steps in which no target counts: their
    // loss is 0. If EMPTY is empty, every micro step has targets that count.
    void begin(int64_t step, std::vector<char> empty);
    // Adds the loss of the next micro step. Throws Error{kDiverged} if it is not finite.
    void add(double loss);
    // Adds the loss of the next micro step, which values() will read from its device.
    void add_unread(at::Tensor loss) { unread_.push_back(std::move(loss)); }
    // Adds the rewards of the next micro step, [pairs, 2].
    void add_rewards(at::Tensor rewards) { rewards_.push_back(std::move(rewards)); }

    // Returns the losses of the micro steps so far. May have to wait for the device, to read losses
    // that are still there. Throws Error{kDiverged} if one of these losses is not finite.
    [[nodiscard]] const std::vector<double>& values();
    // Returns the mean rewards over the micro steps, which all have the same weight; nullopt if
    // there are none. May wait for the device.
    [[nodiscard]] std::optional<graph::RewardMeans> rewards() const;

  private:
    bool stops_on_nonfinite_;
    bool knows_targets_;
    int64_t step_ = 0;
    std::vector<char> empty_;  // by micro step; empty if every micro step has targets that count
    std::vector<double> values_;
    std::vector<at::Tensor> unread_;   // losses of the micro steps after those in values_
    std::vector<at::Tensor> rewards_;  // by micro step
};

}  // namespace dslaunch::runtime
