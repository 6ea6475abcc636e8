// The verdict: finds the host, link or direction to blame from the measured paths between hosts.
// Pure. Each measurement is compared with medians of the same pass. A path is blamed only if it
// looks bad in every pass. docs/guide/health.md has the rules and their figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "health/health_record.h"
#include "health/health_schedule.h"

namespace dslaunch::health {

// The measurements of a search, and the hosts between which they were made.
struct HealthSamples {
    std::vector<std::string> host_names;  // one for each node rank
    std::vector<LinkSample> links;
    std::vector<HostSample> hosts;
    std::vector<HealthFault> faults;
};

// A host, path or rank to blame, with the figures that show it.
struct HealthFinding {
    // kEverything: all paths are bad, so that no single host or path can be blamed.
    enum class Subject { kHost, kLink, kDirection, kRank, kEverything };
    Subject subject = Subject::kHost;
    std::vector<int64_t> nodes;  // one host, two ends of a link, from and to of a direction
    int64_t rank = -1;           // kRank only
    std::string text;            // names the subject, with its figures and good ones
};

// The largest number of passes in which one direction is measured.
inline constexpr int kHealthPasses = 3;

// Returns the links that the next pass measures: first the links that look bad in PASS, then
// healthy links for comparison. A link with from == to is a host itself. Empty if no link is bad.
[[nodiscard]] std::vector<NodeLink> links_to_repeat(const HealthSamples& samples, int pass);

// Returns the findings: first about hosts, then about links, then faults of ranks. Empty if
// everything is healthy.
[[nodiscard]] std::vector<HealthFinding> judge(const HealthSamples& samples);

// The host of each rank, as an index into HOST_NAMES.
struct GpuPlaces {
    std::vector<int64_t> node_of_rank;
    std::vector<std::string> host_names;
};

// Returns the pairs of GPUs whose rate is less than half of the median of their kind. A kind
// (inside a host, or between hosts) needs at least three pairs. If a GPU is slow with all of its
// partners, and has at least three partners, the GPU is reported instead of its pairs. REQUIRES:
// all ranks are in PLACES.
[[nodiscard]] std::vector<HealthFinding> judge_gpu_pairs(const std::vector<GpuPairSample>& pairs,
                                                         const GpuPlaces& places);

// Returns true if a path does not work at all, so that collectives would hang on it.
[[nodiscard]] bool has_broken_path(const HealthSamples& samples);

// Returns "host", "link", "direction", "rank" or "everything".
[[nodiscard]] const char* subject_name(HealthFinding::Subject subject);

}  // namespace dslaunch::health
