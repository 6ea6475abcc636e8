#include "launcher/tune/trial_steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/median.h"

namespace dslaunch::launcher {
namespace {

constexpr double kSlowTimes = 2;  // a trial this many times slower than the best ends early,
constexpr size_t kSlowSteps = 2;  // after this many steps

}  // namespace

void TrialSteps::add(std::string_view line) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("step_ms") || !record["step_ms"].is_number())
        return;
    newest_ = record.value("step", newest_ + 1);
    const double step_s = record["step_ms"].get<double>() / 1e3;
    (newest_ < rules_.first ? early_s_ : measured_s_).push_back(step_s);
    if (record.contains("peak_rss_bytes") && record["peak_rss_bytes"].is_number_integer())
        peak_bytes_ = std::max(peak_bytes_, record["peak_rss_bytes"].get<int64_t>());
}

bool TrialSteps::is_done() const {
    if (measured_s_.empty()) return false;
    if (rules_.best_s > 0 && measured_s_.size() >= kSlowSteps &&
        *step_s() > kSlowTimes * rules_.best_s)
        return true;
    if (rules_.last) return newest_ >= *rules_.last;
    const auto count = std::ssize(measured_s_);
    const double span_s = std::accumulate(measured_s_.begin(), measured_s_.end(), 0.0);
    return count >= rules_.most || (count >= rules_.least && span_s >= rules_.span_s);
}

std::optional<double> TrialSteps::step_s() const {
    if (!measured_s_.empty()) return median_of(measured_s_, Middle::kMean);
    if (!early_s_.empty()) return median_of(early_s_, Middle::kMean);
    return std::nullopt;
}

}  // namespace dslaunch::launcher
