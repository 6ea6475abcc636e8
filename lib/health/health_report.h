// The health report: collects the records of `dslaunch health` while the job runs. After the job,
// it judges them and writes the report as text or JSON. If a job ends early, it judges the records
// that have arrived. Data path: agents -> job output -> [here] -> stdout. One thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "health/health_verdict.h"

namespace dslaunch::health {

// The place of a rank in the job.
struct HealthPlace {
    std::string host;
    int local_rank = 0;
};

// The job that is measured, and the bandwidth that it must reach.
struct HealthReportOptions {
    std::vector<HealthPlace> ranks;       // one for each rank
    std::vector<std::string> host_names;  // one for each node rank
    double min_bus_bandwidth = 0;  // GB/s that each operation must reach for at least one size
};

// The mean time of one operation with one message size, over all ranks, as in nccl-tests.
struct HealthRow {
    HealthOp op = HealthOp::kBarrier;
    int64_t bytes = 0;
    int64_t iterations = 0;
    int ranks = 0;  // number of ranks that finished the operation
    double seconds = 0;

    [[nodiscard]] double algorithm_bandwidth() const;  // GB/s, 0 for the barrier
    // Returns the GB/s that a link carries (bus_factor()); 0 for the barrier.
    [[nodiscard]] double bus_bandwidth(int world_size) const;
};

// The records of one job and, after conclude(), the findings.
class HealthReport {
  public:
    explicit HealthReport(HealthReportOptions options);

    // Adds the PAYLOAD of a kHealth frame from RANK. Throws Error{kInternal} if it is not a record.
    void add(int rank, std::string_view payload);
    // Judges the records. JOB_CODE is the exit code of the job.
    void conclude(int job_code);

    // Returns 0 if there is no finding and the job ended well. Returns kSetup if the job ended well
    // but there is a finding, or if the job hung and a bad host or path explains the hang.
    // Otherwise returns the job's own code. REQUIRES: conclude() was called.
    [[nodiscard]] int exit_code() const;
    // Return the report as text, which is safe to print, or as one line of JSON. REQUIRES:
    // conclude() was called.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] std::string json() const;
    // Returns the findings; empty before conclude().
    [[nodiscard]] const std::vector<HealthFinding>& findings() const { return findings_; }
    // Returns a row for each measured operation and size, in the order of HealthOp.
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
    std::vector<GpuPairSample> gpu_pairs_;  // after conclude(): the slowest first
    std::vector<std::string> notes_;
    std::vector<HealthFinding> findings_;
    int job_code_ = 0;
    bool is_concluded_ = false;
};

}  // namespace dslaunch::health
