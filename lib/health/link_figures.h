// The figures of the measured links, in words, for the health report. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "health/health_record.h"

namespace dslaunch::health {

// Returns a text such as "9.84 MB/s" or "1.21 GB/s": decimal, as nccl-tests and iperf3 count.
[[nodiscard]] std::string rate_text(double bytes_per_second);
// Returns a text such as "62 us", "5.1 ms" or "2.0 s".
[[nodiscard]] std::string time_text(double nanoseconds);
// Returns the PARTS of a finding's text, separated by "; ".
[[nodiscard]] std::string join_parts(const std::vector<std::string>& parts);

// The samples of several links together. Each function returns one figure as a text, for all of
// these links. If a function has the argument GOOD, the text also gives this figure of the links in
// GOOD.
class LinkFigures {
  public:
    // Adds SAMPLE. If RATE_COUNTS is false, rate() ignores this sample.
    void add(const LinkSample& sample, bool rate_counts);

    // Returns the reason why the first broken path does not work.
    [[nodiscard]] std::string error() const;
    // Returns the number of words that arrived changed.
    [[nodiscard]] std::string wrong() const;
    // Returns the best rate that was measured.
    [[nodiscard]] std::string rate(const LinkFigures& good) const;
    // Return the number and share of small messages that had to be sent again, or that came twice.
    [[nodiscard]] std::string loss() const;
    [[nodiscard]] std::string duplicates() const;
    // Return a figure of round-trip times: delay() returns the median of the samples' medians,
    // tail() the median of the samples' 99th percentiles.
    [[nodiscard]] std::string delay(const LinkFigures& good) const;
    [[nodiscard]] std::string tail(const LinkFigures& good) const;

  private:
    std::vector<LinkSample> samples_;
    std::vector<double> rates_;
};

// Returns a text that compares the time that NODE's processor takes with the other nodes' times.
[[nodiscard]] std::string busy_text(const std::vector<HostSample>& hosts, int64_t node);

}  // namespace dslaunch::health
