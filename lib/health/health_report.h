// The health report: collects what the ranks of `dslaunch health` measured, record by record while
// the job runs, then judges it and prints text or JSON. A job that ends early is judged by the
// records that came. agents -> job output -> [here] -> stdout. One thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "health/health_verdict.h"

namespace dslaunch::health {

struct HealthPlace {
    std::string host;
    int local_rank = 0;
};

struct HealthReportOptions {
    std::vector<HealthPlace> ranks;       // one for each rank
    std::vector<std::string> host_names;  // one for each node rank
    double min_bus_bandwidth = 0;  // GB/s that each operation must reach at one size at least
};

// One operation of one size over all ranks; the time is the mean over ranks, as nccl-tests takes
// it.
struct HealthRow {
    HealthOp op = HealthOp::kBarrier;
    int64_t bytes = 0;
    int64_t iterations = 0;
    int ranks = 0;  // the ranks that finished it
    double seconds = 0;

    [[nodiscard]] double algorithm_bandwidth() const;  // GB/s, 0 for the barrier
    [[nodiscard]] double bus_bandwidth(int world_size) const;
};

class HealthReport {
  public:
    explicit HealthReport(HealthReportOptions options);

    // Adds the PAYLOAD of a kHealth frame of RANK. Throws Error{kInternal} if it is not one.
    void add(int rank, std::string_view payload);
    // Judges. The job ended with JOB_CODE.
    void conclude(int job_code);

    // Returns 0 when healthy; kSetup when something was found and the job ended well, or hung with
    // a bad host or way between hosts; else the job's own code. REQUIRES: concluded.
    [[nodiscard]] int exit_code() const;
    [[nodiscard]] std::string text() const;
    [[nodiscard]] std::string json() const;
    [[nodiscard]] const std::vector<HealthFinding>& findings() const { return findings_; }
    [[nodiscard]] std::vector<HealthRow> rows() const;

  private:
    [[nodiscard]] int world_size() const { return static_cast<int>(options_.ranks.size()); }
    void check_bandwidth();
    [[nodiscard]] std::string link_table() const;
    [[nodiscard]] std::string gpu_pair_table() const;

    HealthReportOptions options_;
    std::map<int, HealthMember> members_;
    std::map<std::pair<HealthOp, int64_t>, std::map<int, HealthTiming>> timings_;
    HealthSamples samples_;
    std::vector<GpuPairSample> gpu_pairs_;  // the slowest first, once concluded
    std::vector<std::string> notes_;
    std::vector<HealthFinding> findings_;
    int job_code_ = 0;
    bool concluded_ = false;
};

}  // namespace dslaunch::health
