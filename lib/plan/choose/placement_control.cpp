#include "plan/choose/placement_control.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/median.h"

namespace dslaunch::plan {
namespace {

double seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
}

template <typename Time>
double median(std::span<const StepTimes> steps, Time&& time) {
    std::vector<double> values;
    for (const StepTimes& step : steps) values.push_back(time(step));
    return median_of(std::move(values), Middle::kUpper);
}

// Returns the median of each time separately. For an even number of steps, the median is the upper
// one of the two middle values. REQUIRES: STEPS is not empty.
StepTimes median_step(std::span<const StepTimes> steps) {
    StepTimes result;
    result.step_s = median(steps, [](const StepTimes& step) { return step.step_s; });
    for (size_t lane = 0; lane < kLanes; ++lane) {
        result.busy_s[lane] =
            median(steps, [&](const StepTimes& step) { return step.busy_s[lane]; });
        result.on_path_s[lane] =
            median(steps, [&](const StepTimes& step) { return step.on_path_s[lane]; });
    }
    return result;
}

// The number of steps in the window: enough for a median, few enough to be recent.
constexpr int64_t kWindow = 16;
// The smallest relative difference that is expected between two measurements of a step even if
// nothing has changed.
constexpr double kNoiseMin = 0.02;

}  // namespace

StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans, double step_s) {
    DSL_CHECK(spans.size() == plan.instructions.size(), "{} spans do not match {} instructions",
              spans.size(), plan.instructions.size());
    StepTimes times;
    times.step_s = step_s;
    if (spans.empty()) return times;
    const auto end_of = [&](int i) { return spans[i].end; };
    const auto lane_of = [&](size_t i) { return static_cast<size_t>(plan.instructions[i].lane); };
    std::vector<int> before;  // by instruction, the previous instruction of its lane; -1: none
    std::array<int, kLanes> last;
    last.fill(-1);
    int at = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
        before.push_back(std::exchange(last[lane_of(i)], static_cast<int>(i)));
        times.busy_s[lane_of(i)] += seconds(spans[i].end - spans[i].begin);
        if (spans[i].end > end_of(at)) at = static_cast<int>(i);
    }
    while (at >= 0) {
        const auto i = static_cast<size_t>(at);
        int waited_for = before[i];
        for (const int wait : plan.instructions[i].waits)
            if (waited_for < 0 || end_of(wait) > end_of(waited_for)) waited_for = wait;
        const Duration from = waited_for < 0 ? Duration{0} : end_of(waited_for);
        times.on_path_s[lane_of(i)] += seconds(spans[i].end - from);
        at = waited_for;
    }
    return times;
}

PlacementControl::PlacementControl(std::vector<Bytes> chunks, int64_t swap_buffers, int64_t kept,
                                   EvictionRule eviction)
    : chunks_(std::move(chunks)),
      swap_buffers_(swap_buffers),
      kept_(kept),
      kept_most_(kept),
      eviction_(eviction) {}

bool PlacementControl::add(const StepTimes& step) {
    if (settle_ > 0) {
        --settle_;
        return false;
    }
    if (std::ssize(window_) == kWindow) window_.erase(window_.begin());
    window_.push_back(step);
    return --left_ == 0;
}

PlacementFacts PlacementControl::measured() const {
    const StepTimes times = median_step(window_);
    PlacementFacts facts;
    facts.step_s = times.step_s;
    const auto [least, most] = std::ranges::minmax(window_, {}, &StepTimes::step_s);
    facts.noise_s = (most.step_s - least.step_s) / 2;
    facts.compute_s = times.busy(Lane::kCompute);
    facts.communication_s = times.busy(Lane::kCommunication);
    facts.read_s = times.busy(Lane::kRead);
    facts.write_s = times.busy(Lane::kWrite);
    facts.waited_read_s = times.on_path(Lane::kRead);
    facts.waited_write_s = times.on_path(Lane::kWrite);
    return facts;
}

bool PlacementControl::made_slower(const PlacementFacts& agreed) const {
    if (!unjudged_) return false;
    const double noise =
        std::max({unjudged_->noise_s_before, agreed.noise_s, kNoiseMin * unjudged_->step_s_before});
    // If the computation itself takes longer, the cause is other work on the machine, not the
    // placement.
    const double slower =
        unjudged_->compute_s_before > 0 ? agreed.compute_s / unjudged_->compute_s_before : 1;
    return agreed.step_s > unjudged_->step_s_before * std::max(1.0, slower) + noise;
}

PlacementChoice PlacementControl::take_back(const PlacementFacts& agreed) {
    may_keep_more_ = false;
    const int64_t before = unjudged_->kept_before;
    return {
        before, unjudged_->step_s_before,
        fmt::format("moved {} of {} chunks back to disk (now {} chunks are in memory, and no more "
                    "will be moved into memory): a step with more chunks in memory takes {:.3g} s, "
                    "but {:.3g} s were expected, and a step before the change took {:.3g} s",
                    kept_ - before, chunks_.size(), before, agreed.step_s,
                    unjudged_->expected_step_s, unjudged_->step_s_before)};
}

PlacementChoice PlacementControl::decide(const PlacementFacts& agreed) {
    if (!first_step_s_) first_step_s_ = agreed.step_s;
    last_step_s_ = agreed.step_s;
    window_.clear();
    const bool taken_back = made_slower(agreed);
    const PlacementChoice choice =
        taken_back
            ? take_back(agreed)
            : choose_placement(agreed, {chunks_, swap_buffers_, kept_, may_keep_more_, eviction_});
    unjudged_.reset();
    if (choice.value > kept_) {
        unjudged_ = Change{kept_, agreed.step_s, agreed.noise_s, agreed.compute_s, choice.cost};
        expected_step_s_ = choice.cost;
    } else if (choice.value < kept_) {
        expected_step_s_.reset();  // a change that frees memory promises no speed
    }
    const bool changed = choice.value != kept_;
    settle_ = changed ? kPlacementSettle : 0;
    interval_ = changed ? kPlacementMeasured : std::min(2 * interval_, kPlacementIntervalMax);
    left_ = interval_;
    kept_ = choice.value;
    kept_most_ = std::max(kept_most_, kept_);
    return choice;
}

std::string PlacementControl::summary() const {
    const double now = window_.empty() ? last_step_s_ : median_step(window_).step_s;
    std::string text = fmt::format("{} of {} chunks in memory at the end", kept_, chunks_.size());
    if (!first_step_s_) return text + "; there were too few steps to choose the placement";
    text += fmt::format("; a step takes {:.3g} s", now);
    if (expected_step_s_)
        text += fmt::format("; the expected time was {:.3g} s", *expected_step_s_);
    return text + fmt::format("; before the first change, a step took {:.3g} s", *first_step_s_);
}

}  // namespace dslaunch::plan
