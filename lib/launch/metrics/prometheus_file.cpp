#include "launch/metrics/prometheus_file.h"

#include <fmt/format.h>

#include "base/new_files.h"

namespace dslaunch::launch {
namespace {

// Returns the name of the gauge for EVENT: letters, digits and `_`.
std::string gauge_name(std::string_view event) {
    if (event.starts_with(kEventPrefix)) event.remove_prefix(kEventPrefix.size());
    std::string name = "dslaunch_";
    for (const char c : event) {
        const bool is_plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        name.push_back(is_plain ? c : '_');
    }
    return name;
}

// Returns VALUE in the form that Prometheus requires between the quotes of a label: with escapes
// for backslashes, quotes and newlines.
std::string label_text(std::string_view value) {
    std::string text;
    for (const char c : value) {
        if (c == '\\' || c == '"') text.push_back('\\');
        if (c == '\n') {
            text += "\\n";
        } else {
            text.push_back(c);
        }
    }
    return text;
}

}  // namespace

std::string PrometheusFile::name() const {
    return fmt::format("{} (dslaunch.metrics.prometheus)", path_);
}

int PrometheusFile::begin(int64_t /*samples*/, bool /*is_new_run*/) {
    return 0;
}

int PrometheusFile::write(const MetricsRecord& record, int64_t samples) {
    for (const MetricEvent& event : record.events) values_[gauge_name(event.name)] = event.value;
    if (record.samples) {
        values_["dslaunch_step"] = static_cast<double>(record.step.value_or(0));
        values_["dslaunch_samples"] = static_cast<double>(samples);
        values_["dslaunch_step_time_seconds"] =
            std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                .count();
    }
    const TimePoint now = clock_.now();
    if (is_written_ && now - written_at_ < kEach) return 0;
    written_at_ = now;
    return replace(true);
}

int PrometheusFile::end() {
    return values_.empty() ? 0 : replace(false);
}

std::string PrometheusFile::text(bool is_running) const {
    const std::string label = label_text(run_);
    std::string text;
    const auto add = [&](const std::string& name, double value) {
        text += fmt::format("# HELP {} See docs/reference/metrics.md of dslaunch.\n", name);
        text += fmt::format("# TYPE {} gauge\n{}{{run=\"{}\"}} {}\n", name, name, label, value);
    };
    for (const auto& [name, value] : values_) add(name, value);
    add("dslaunch_running", is_running ? 1 : 0);
    return text;
}

// Replaces the file as a whole, since a collector may read it at any time. Does not sync it, since
// a power cut ends the job too.
int PrometheusFile::replace(bool is_running) {
    const int status = replace_file(path_, text(is_running), 0644);
    is_written_ = is_written_ || status == 0;
    return status;
}

}  // namespace dslaunch::launch
