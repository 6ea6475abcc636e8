// A line of metrics.jsonl as values: the step, and the numbers under the names of DeepSpeed's
// monitors. Data path: rank 0 -> JobOutput -> [here] -> MetricsFeed -> sinks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// A number of a step, such as {"Train/Samples/train_loss", 2.5}.
struct MetricEvent {
    std::string name;
    double value = 0;

    bool operator==(const MetricEvent&) const = default;
};

// The prefix of all event names, as in DeepSpeed, and the name of the loss scale's event, which
// DeepSpeed writes with fp16 only.
inline constexpr std::string_view kEventPrefix = "Train/Samples/";
inline constexpr std::string_view kLossScaleEvent = "Train/Samples/loss_scale";

// One line of metrics.jsonl.
struct MetricsRecord {
    std::string line;                // without a newline
    std::optional<int64_t> step;     // nothing: the line names no step
    std::optional<int64_t> samples;  // samples of all steps up to this step, if it is a step
    std::vector<MetricEvent> events;
};

// Reads LINE. A line that is not a JSON object gives a record without a step and without events.
// Each number of the object becomes an event, in the line's order, except peak_tflops and the
// counts of steps and samples. Events have DeepSpeed's names: `loss` becomes train_loss, and
// `breakdown_ms` becomes elapsed_time_ms_…. Other fields keep their names. Null values are left
// out.
[[nodiscard]] MetricsRecord read_metrics(std::string_view line);

}  // namespace dslaunch::launch
