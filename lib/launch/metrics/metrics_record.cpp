#include "launch/metrics/metrics_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

// Fields that do not become events. Steps and counts of samples are on the horizontal axis, and
// peak_tflops is the same at every step.
constexpr std::array<std::string_view, 4> kNoEvents{"step", "samples", "eval_samples",
                                                    "peak_tflops"};
// The names of a field in metrics.jsonl and in DeepSpeed, if they differ.
constexpr std::array<std::array<std::string_view, 2>, 1> kDeepSpeedNames{{{"loss", "train_loss"}}};
constexpr const char* kBreakdown = "breakdown_ms";

std::string event_name(std::string_view field) {
    const auto* const known =
        std::ranges::find(kDeepSpeedNames, field, [](const auto& names) { return names.front(); });
    return fmt::format("{}{}", kEventPrefix,
                       known == kDeepSpeedNames.end() ? field : known->back());
}

std::optional<int64_t> integer_in(const Json& record, const char* field) {
    const auto found = record.find(field);
    if (found == record.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<int64_t>();
}

// Adds the times that DeepSpeed's monitors write with wall_clock_breakdown.
void add_breakdown(const Json& times, std::vector<MetricEvent>& events) {
    const auto time = [&](const char* work) {
        const auto found = times.find(work);
        return found != times.end() && found->is_number() ? found->get<double>() : 0;
    };
    const double inner = time("backward");
    const double reduce = time("reduce");
    const std::string prefix = fmt::format("{}elapsed_time_ms_", kEventPrefix);
    events.push_back({prefix + "forward", time("forward")});
    events.push_back({prefix + "backward", inner + reduce});
    events.push_back({prefix + "backward_inner", inner});
    events.push_back({prefix + "backward_allreduce", reduce});
    events.push_back({prefix + "step", time("update")});
}

}  // namespace

MetricsRecord read_metrics(std::string_view line) {
    MetricsRecord result;
    result.line = line;
    const Json record = Json::parse(line, nullptr, false);
    if (!record.is_object()) return result;
    result.step = integer_in(record, "step");
    result.samples = integer_in(record, "samples");
    for (const auto& [field, value] : record.items()) {
        if (value.is_object() && field == kBreakdown) add_breakdown(value, result.events);
        const bool is_event = std::ranges::find(kNoEvents, field) == kNoEvents.end();
        if (value.is_number() && is_event)
            result.events.push_back({event_name(field), value.get<double>()});
    }
    return result;
}

}  // namespace dslaunch::launch
