#include "runtime/schedules/update_schedule.h"

#include "runtime/schedules/learning_rate.h"

namespace dslaunch::runtime {

UpdateSchedule::UpdateSchedule(const config::RunConfig& config, int64_t updates,
                               const std::optional<LossScaleState>& scale)
    : config_(config),
      scaler_(scale ? LossScaler(config.precision.loss_scale, *scale)
                    : LossScaler(config.precision.loss_scale)),
      updates_(updates) {}

void UpdateSchedule::begin_step() {
    lr_ = learning_rate(config_.scheduler, config_.optimizer.lr, updates_);
}

bool UpdateSchedule::end_step(bool is_skipped) {
    updates_ += is_skipped ? 0 : 1;
    return scaler_.update(is_skipped);
}

std::optional<config::Betas> UpdateSchedule::betas() const {
    return scheduled_betas(config_.scheduler, updates_);
}

}  // namespace dslaunch::runtime
