#include "health/link_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/median.h"
#include "base/text.h"

namespace dslaunch::health {
namespace {

// Returns the median; 0 if there are no values.
double middle_of(const std::vector<double>& values) {
    return values.empty() ? 0 : median_of(values, Middle::kUpper);
}

std::string beside(double value, std::string (*text)(double)) {
    return value > 0 ? fmt::format(" (elsewhere {})", text(value)) : std::string();
}

std::vector<double> column(const std::vector<LinkSample>& samples, int64_t LinkSample::*field) {
    std::vector<double> values;
    for (const LinkSample& sample : samples)
        if (sample.exchanges > 0) values.push_back(static_cast<double>(sample.*field));
    return values;
}

int64_t sum(const std::vector<LinkSample>& samples, int64_t LinkSample::*field) {
    int64_t total = 0;
    for (const LinkSample& sample : samples) total += sample.*field;
    return total;
}

std::string part_text(const std::vector<LinkSample>& samples, int64_t LinkSample::*field,
                      const char* what) {
    int64_t count = 0;
    int64_t all = 0;
    for (const LinkSample& sample : samples) {
        if (sample.*field == 0) continue;
        count += sample.*field;
        all += sample.exchanges + sample.*field;
    }
    return fmt::format(
        "{} of {} small messages {} ({:.2g} %)", count, all, what,
        100.0 * static_cast<double>(count) / static_cast<double>(std::max<int64_t>(all, 1)));
}

}  // namespace

std::string rate_text(double bytes_per_second) {
    if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
    if (bytes_per_second >= 1e6) return fmt::format("{:.2f} MB/s", bytes_per_second / 1e6);
    return fmt::format("{:.2f} kB/s", bytes_per_second / 1e3);
}

std::string time_text(double nanoseconds) {
    if (nanoseconds >= 1e9) return fmt::format("{:.1f} s", nanoseconds / 1e9);
    if (nanoseconds >= 1e6) return fmt::format("{:.1f} ms", nanoseconds / 1e6);
    return fmt::format("{:.0f} us", nanoseconds / 1e3);
}

std::string join_parts(const std::vector<std::string>& parts) {
    return join(parts, "; ");
}

void LinkFigures::add(const LinkSample& sample, bool rate_counts) {
    samples_.push_back(sample);
    if (rate_counts && sample.free_bytes_per_second > 0)
        rates_.push_back(static_cast<double>(sample.free_bytes_per_second));
}

std::string LinkFigures::error() const {
    const auto found = std::find_if(samples_.begin(), samples_.end(),
                                    [](const LinkSample& s) { return !s.error.empty(); });
    return found == samples_.end() ? "broken" : found->error;
}

std::string LinkFigures::wrong() const {
    return fmt::format(
        "{} words of 8 bytes arrived changed: memory, a network card or a switch changes data, and "
        "no checksum detects it",
        sum(samples_, &LinkSample::wrong));
}

// Returns a text with the best rate of the links. The best rate is used because a single bad
// measurement cannot make it low.
std::string LinkFigures::rate(const LinkFigures& good) const {
    const double best = rates_.empty() ? 0 : *std::max_element(rates_.begin(), rates_.end());
    return fmt::format("slow, {} at best{}", rate_text(best),
                       beside(middle_of(good.rates_), rate_text));
}

std::string LinkFigures::loss() const {
    return part_text(samples_, &LinkSample::lost, "had to be sent again: packets are lost");
}

std::string LinkFigures::duplicates() const {
    return part_text(samples_, &LinkSample::duplicated, "came twice: packets are duplicated");
}

std::string LinkFigures::delay(const LinkFigures& good) const {
    return fmt::format("late, a round trip takes {}{}",
                       time_text(middle_of(column(samples_, &LinkSample::rtt_p50))),
                       beside(middle_of(column(good.samples_, &LinkSample::rtt_p50)), time_text));
}

std::string LinkFigures::tail(const LinkFigures& good) const {
    return fmt::format("unsteady, the slowest 1 % of round trips take {} or more{}",
                       time_text(middle_of(column(samples_, &LinkSample::rtt_p99))),
                       beside(middle_of(column(good.samples_, &LinkSample::rtt_p99)), time_text));
}

std::string busy_text(const std::vector<HostSample>& hosts, int64_t node) {
    std::vector<double> own;
    std::vector<double> others;
    for (const HostSample& host : hosts)
        (host.node == node ? own : others).push_back(static_cast<double>(host.nanoseconds));
    return fmt::format(
        "its processor takes {} for work that others do in {}: it is busy, throttled or too hot",
        time_text(middle_of(own)), time_text(middle_of(others)));
}

}  // namespace dslaunch::health
