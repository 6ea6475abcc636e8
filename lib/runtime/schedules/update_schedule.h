// The settings of a step that follow from the results of the steps before it: the learning rate,
// the betas and the loss scale. All ranks pass the same results, so every rank has the same
// settings. Data path: run config, results of steps -> [here] -> trainer. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "config/run/run_config.h"
#include "runtime/schedules/loss_scale.h"

namespace dslaunch::runtime {

// Counts updates; see the top of this file. A step that is skipped is no update.
class UpdateSchedule {
  public:
    // Continues after UPDATES updates. SCALE: the loss scale of the steps before; nullopt: the
    // scale begins as CONFIG says. CONFIG must outlive this object. REQUIRES: what LossScaler does.
    UpdateSchedule(const config::RunConfig& config, int64_t updates,
                   const std::optional<LossScaleState>& scale);

    // Chooses the learning rate of the next step.
    void begin_step();
    // Records the result of the step. Returns true if the loss scale changed. Throws as
    // LossScaler::update() does.
    bool end_step(bool is_skipped);

    // Returns the learning rate of the step that began last; 0 before the first.
    [[nodiscard]] double lr() const { return lr_; }
    // Returns the betas of the next update if the scheduler changes them; nullopt if the
    // optimizer's betas apply.
    [[nodiscard]] std::optional<config::Betas> betas() const;
    // Returns the factor by which the loss of the next step is multiplied.
    [[nodiscard]] double scale() const { return scaler_.scale(); }
    // Returns the part of the loss scale that a checkpoint contains.
    [[nodiscard]] const LossScaleState& scale_state() const { return scaler_.state(); }
    // Returns the number of updates, including those before this object was made.
    [[nodiscard]] int64_t updates() const { return updates_; }

  private:
    const config::RunConfig& config_;
    LossScaler scaler_;
    int64_t updates_;
    double lr_ = 0;
};

}  // namespace dslaunch::runtime
