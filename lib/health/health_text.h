// Figures of `dslaunch health` in words: rates, times, and what a finding says of its links. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "health/health_record.h"

namespace dslaunch::health {

// "9.84 MB/s", "1.21 GB/s": decimal, as nccl-tests and iperf3 count.
[[nodiscard]] std::string rate_text(double bytes_per_second);
// "62 us", "5.1 ms", "2.0 s"
[[nodiscard]] std::string time_text(double nanoseconds);
// The median, the upper one of two in the middle; 0 of nothing.
[[nodiscard]] double middle_of(std::vector<double> values);
[[nodiscard]] std::string join_parts(const std::vector<std::string>& parts);

// Samples of some links taken together. Each text names the worst of them, beside what GOOD has.
class LinkFigures {
  public:
    // RATE_COUNTS: the sample's rate is one of those to speak of.
    void add(const LinkSample& sample, bool rate_counts);

    [[nodiscard]] std::string error() const;
    [[nodiscard]] std::string wrong() const;
    [[nodiscard]] std::string rate(const LinkFigures& good) const;
    [[nodiscard]] std::string loss() const;
    [[nodiscard]] std::string duplicates() const;
    [[nodiscard]] std::string delay(const LinkFigures& good) const;
    [[nodiscard]] std::string tail(const LinkFigures& good) const;

  private:
    std::vector<LinkSample> samples_;
    std::vector<double> rates_;
};

// Says how long NODE's processor takes beside the others'.
[[nodiscard]] std::string busy_text(const std::vector<HostSample>& hosts, int64_t node);

}  // namespace dslaunch::health
