#include "runtime/train/step_line.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/terminal/moving_line.h"

namespace dslaunch::runtime {

namespace {

// The length from which a step counts as long, so that users need to see its progress.
constexpr double kLongStepSeconds = 2;
constexpr double kNewStepWeight = 0.2;

}  // namespace

std::string mfu_text(double share) {
    return share < 0.1 ? fmt::format("{:.2g} %", 100 * share)
                       : fmt::format("{:.0f} %", 100 * share);
}

double StepLine::seconds_since(TimePoint begin) const {
    return to_milliseconds(clock_.now() - begin) / 1e3;
}

void StepLine::begin_step(int64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
    step_began_ = clock_.now();
    other_.clear();
}

// Updates the mean time of steps. The first step takes longer than others, so its time counts only
// until the second step has ended. At first, all further steps have the same weight. Later, recent
// steps have more weight than old steps.
void StepLine::end_step(const DoneStep& done) {
    const std::lock_guard lock(mutex_);
    const auto others = static_cast<double>(steps_done_++);
    const double weight = others < 2 ? 1 : std::max(kNewStepWeight, 1 / others);
    mean_ms_ += weight * (done.step_ms - mean_ms_);
    done_ = done;
    step_began_ = clock_.now();
}

void StepLine::begin_other(std::string_view what) {
    const std::lock_guard lock(mutex_);
    other_ = what;
    other_share_ = 0;
    other_began_ = clock_.now();
    step_began_ = other_began_;  // this time is not part of a step
}

void StepLine::do_other(double share) {
    const std::lock_guard lock(mutex_);
    other_share_ = share;
}

std::string StepLine::text(double share) const {
    const std::lock_guard lock(mutex_);
    const bool is_other = !other_.empty();
    if (step_ == 0 && !is_other) return {};
    const int64_t done = done_ ? done_->step : std::max<int64_t>(step_ - 1, 0);
    const double in_step = is_other ? 0 : seconds_since(step_began_);
    std::string text = fmt::format("step {}/{}", done, steps_);
    if (is_other) {
        text += fmt::format(", {} {}", other_, time_text(seconds_since(other_began_)));
        if (other_share_ > 0) text += fmt::format(" ({:.0f} %)", 100 * other_share_);
    } else if ((in_step >= kLongStepSeconds || !done_) && done < steps_) {
        text = fmt::format("step {}/{}, {} ({:.0f} %)", done + 1, steps_, time_text(in_step),
                           100 * std::clamp(share, 0.0, 1.0));
    }
    if (!done_) return text;
    const double step_seconds = mean_ms_ / 1e3;
    const double left = step_seconds * static_cast<double>(steps_ - done) - in_step;
    text += fmt::format("  loss {:.4f}  left {}  lr {:.3g}  {:.{}f} ms/step", done_->loss,
                        clock_text(left), done_->lr, mean_ms_, mean_ms_ < 100 ? 1 : 0);
    if (step_seconds > 0)
        text += fmt::format("  {} {}/s", rate_number(done_->units_per_step / step_seconds),
                            done_->unit);
    if (done_->mfu > 0) text += fmt::format("  mfu {}", mfu_text(done_->mfu));
    return text + fmt::format("  {}", to_text(done_->rss));
}

void Activity::begin(std::string_view what) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    part_began_ = clock_.now();
}

std::string Activity::text() const {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    if (what_.empty() || now - began_ < kShownAfter) return {};
    return fmt::format("{}  {}", what_, time_text(to_milliseconds(now - part_began_) / 1e3));
}

}  // namespace dslaunch::runtime
