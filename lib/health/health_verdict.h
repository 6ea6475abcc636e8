// The verdict finds the host, link or direction to blame from the measured ways between hosts.
// Pure. A measure is compared by medians with others of its own pass only, and must look bad in
// every pass; docs/guide/health.md has the rules and their figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "health/health_record.h"
#include "health/health_schedule.h"

namespace dslaunch::health {

// Returns "9.84 MB/s", "1.21 GB/s": decimal, as nccl-tests and iperf3 count.
[[nodiscard]] std::string rate_text(double bytes_per_second);
// Returns "62 us", "5.1 ms", "2.0 s".
[[nodiscard]] std::string time_text(double nanoseconds);
// Returns the median, or the upper one of two in the middle; 0 for no values.
[[nodiscard]] double middle_of(std::vector<double> values);
[[nodiscard]] std::string join_parts(const std::vector<std::string>& parts);

// Samples of some links taken together. Each text names the worst of them, beside GOOD's figure.
class LinkFigures {
  public:
    // RATE_COUNTS: the texts may name the sample's rate.
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

// Returns how long NODE's processor takes beside the others', in words.
[[nodiscard]] std::string busy_text(const std::vector<HostSample>& hosts, int64_t node);

struct HealthSamples {
    std::vector<std::string> host_names;  // one for each node rank
    std::vector<LinkSample> links;
    std::vector<HostSample> hosts;
    std::vector<HealthFault> faults;
};

struct HealthFinding {
    enum class Subject { kHost, kLink, kDirection, kRank, kEverything };
    Subject subject = Subject::kHost;
    std::vector<int64_t> nodes;  // one host, two ends of a link, from and to of a direction
    int64_t rank = -1;           // kRank only
    std::string text;            // names the subject, its figures and the others' figures
};

// The most passes in which one way is measured.
inline constexpr int kHealthPasses = 3;

// Returns the links (from == to: a host itself) that the next pass measures: first the ones that
// look bad in PASS, then healthy ones to compare with. Empty when nothing looks bad.
[[nodiscard]] std::vector<NodeLink> links_to_repeat(const HealthSamples& samples, int pass);

// Returns who is to blame: hosts before links, faults of ranks last. Empty: healthy.
[[nodiscard]] std::vector<HealthFinding> judge(const HealthSamples& samples);

// The hosts of ranks, by rank, as indices into HOST_NAMES.
struct GpuPlaces {
    std::vector<int64_t> node_of_rank;
    std::vector<std::string> host_names;
};

// Finds the pairs of GPUs that move less than half of the median of their kind. A kind (inside a
// host, or between hosts) needs at least three pairs. A GPU that is slow with all of three or more
// others is found in place of its pairs. REQUIRES: ranks are places of PLACES.
[[nodiscard]] std::vector<HealthFinding> judge_gpu_pairs(const std::vector<GpuPairSample>& pairs,
                                                         const GpuPlaces& places);

// Returns true when a way does not work at all: collectives would only wait for it.
[[nodiscard]] bool any_broken(const HealthSamples& samples);

// Returns "host", "link", "direction", "rank" or "everything".
[[nodiscard]] const char* subject_name(HealthFinding::Subject subject);

}  // namespace dslaunch::health
