#include "plan/predict/step_times.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

double seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
}

// Returns for each instruction the one before it on its lane, or -1.
std::vector<int> lane_predecessors(const StepPlan& plan) {
    std::vector<int> before;
    std::array<int, kLanes> last;
    last.fill(-1);
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        int& of_lane = last[static_cast<size_t>(plan.instructions[i].lane)];
        before.push_back(of_lane);
        of_lane = static_cast<int>(i);
    }
    return before;
}

template <typename Time>
double median(std::span<const StepTimes> steps, Time&& time) {
    std::vector<double> values;
    for (const StepTimes& step : steps) values.push_back(time(step));
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans, double step_s) {
    DSL_CHECK(spans.size() == plan.instructions.size(), "{} spans of {} instructions", spans.size(),
              plan.instructions.size());
    StepTimes times;
    times.step_s = step_s;
    if (spans.empty()) return times;
    const auto end_of = [&](int i) { return spans[i].end; };
    const auto lane_of = [&](size_t i) { return static_cast<size_t>(plan.instructions[i].lane); };
    int at = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
        times.busy_s[lane_of(i)] += seconds(spans[i].end - spans[i].begin);
        if (spans[i].end > end_of(at)) at = static_cast<int>(i);
    }
    const std::vector<int> before = lane_predecessors(plan);
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

StepTimes median_of(std::span<const StepTimes> steps) {
    DSL_CHECK(!steps.empty(), "the median of no step");
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

}  // namespace dslaunch::plan
