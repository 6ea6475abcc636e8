#include "runtime/executor/device_lanes.h"

#include <algorithm>

#include "base/error.h"

namespace dslaunch::runtime {

void DeviceLanes::follow(const plan::StepPlan& plan, const LaneOrder& order) {
    plan_ = &plan;
    order_ = &order;
    work_.clear();
    marking_ = nullptr;
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        device::Stream* const stream = stream_of(i);
        if (stream == nullptr) continue;
        work_.resize(plan.instructions.size());
        work_[i] = {stream->make_event(), stream->make_event()};
        if (marking_ == nullptr) marking_ = stream;
    }
    step_mark_ = any() ? marking_->make_event() : nullptr;
}

void DeviceLanes::begin_step() {
    given_ = retired_ = {};
    last_progress_ = now();
    if (any()) marking_->record(*step_mark_);
}

void DeviceLanes::add(size_t index) {
    if (!is_busy()) last_progress_ = now();
    ++given_[static_cast<size_t>(plan_->instructions[index].lane)];
    retire();
}

void DeviceLanes::retire() {
    for (size_t lane = 0; lane < order_->size(); ++lane) retire_lane(lane);
}

void DeviceLanes::retire_lane(size_t lane) {
    if (streams_.of_lane[lane] == nullptr) return;
    const std::vector<size_t>& instructions = (*order_)[lane];
    while (retired_[lane] < given_[lane] && is_done(instructions[retired_[lane]])) {
        ++retired_[lane];
        progress_.add_done();
        last_progress_ = now();
    }
    const bool all = retired_[lane] == instructions.size();
    progress_.set_current(static_cast<plan::Lane>(lane),
                          all ? -1 : static_cast<int>(instructions[retired_[lane]]));
}

void DeviceLanes::look() {
    // The time is read before the device's progress, so that an interruption of this thread between
    // the two does not look like a hang of the device.
    const TimePoint before = now();
    retire();
    if (is_busy() && before - last_progress_ > streams_.limit)
        fail(ExitCode::kHang,
             "the device did not finish within {:.1f} s; a rank that it waits for may be gone, or "
             "the device hangs",
             to_milliseconds(streams_.limit) / 1000);
}

std::exception_ptr DeviceLanes::error() {
    std::exception_ptr error;
    for (size_t lane = 0; lane < order_->size(); ++lane) {
        if (streams_.of_lane[lane] == nullptr) continue;
        try {
            retire_lane(lane);
            streams_.of_lane[lane]->check();
        } catch (...) {
            if (error == nullptr) error = std::current_exception();
        }
    }
    return error;
}

size_t DeviceLanes::first_unfinished() const {
    size_t first = plan_->instructions.size() - 1;
    for (size_t lane = 0; lane < order_->size(); ++lane)
        if (retired_[lane] < given_[lane]) first = std::min(first, (*order_)[lane][retired_[lane]]);
    return first;
}

std::optional<plan::InstructionSpan> DeviceLanes::span_of(size_t index) const {
    const Work& work = work_[index];
    if (work.end == nullptr) return std::nullopt;
    return plan::InstructionSpan{work.begin->since(*step_mark_), work.end->since(*step_mark_)};
}

TimePoint DeviceLanes::now() const {
    return streams_.clock == nullptr ? SystemClock().now() : streams_.clock->now();
}

}  // namespace dslaunch::runtime
