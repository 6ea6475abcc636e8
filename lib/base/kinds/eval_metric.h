// The metrics by which the best checkpoint of a run can be chosen, their names, and a function that
// compares two values. Any thread may call the functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace dslaunch {

// The metrics of an evaluation: the loss on held-out data and, for a preference loss, the rewards.
// kEvalMetricNames has the same order.
enum class EvalMetric : uint8_t { kLoss, kChosen, kRejected, kMargins, kAccuracies };

// The metrics' names in transformers' Trainer and in TRL.
inline constexpr std::array<std::string_view, 5> kEvalMetricNames{
    "eval_loss", "eval_rewards/chosen", "eval_rewards/rejected", "eval_rewards/margins",
    "eval_rewards/accuracies"};

[[nodiscard]] constexpr std::string_view eval_metric_name(EvalMetric metric) {
    return kEvalMetricNames.at(static_cast<size_t>(metric));
}

// Returns the metric with that NAME, in lower or upper case, with or without "eval_"; nothing for
// any other name.
[[nodiscard]] inline std::optional<EvalMetric> eval_metric_from_name(std::string_view name) {
    constexpr std::string_view kPrefix = "eval_";
    std::string folded = lower(name);
    if (!folded.starts_with(kPrefix)) folded.insert(0, kPrefix);
    const auto* const found = std::ranges::find(kEvalMetricNames, folded);
    if (found == std::end(kEvalMetricNames)) return std::nullopt;
    return static_cast<EvalMetric>(found - kEvalMetricNames.begin());
}

// Returns true if a larger value of METRIC is better.
[[nodiscard]] constexpr bool is_larger_better(EvalMetric metric) {
    return metric != EvalMetric::kLoss && metric != EvalMetric::kRejected;
}

// Returns true if VALUE of METRIC is better than OTHER. A NaN is never better, and every other
// value is better than a NaN.
[[nodiscard]] constexpr bool is_better(EvalMetric metric, double value, double other) {
    if (value != value) return false;
    if (other != other) return true;
    return is_larger_better(metric) ? value > other : value < other;
}

}  // namespace dslaunch
