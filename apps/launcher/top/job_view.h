// The parts of a job that `dslaunch top` shows: its record, the end of its metrics, and the state
// of its ranks. Data path: STATE/jobs/ID/ and the job's --output folder -> [here] -> job_screen.h.
// Reads only; a file that is missing or just being replaced leaves its part empty. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/jobs/known_jobs.h"
#include "launcher/report/metrics_table.h"

namespace dslaunch::launcher {

// A rank as the launcher saw it last (ranks.json).
struct RankView {
    int64_t rank = 0;
    std::string host, state;
    std::string where;               // step and instruction of its lanes; empty: no heartbeat yet
    double steps = 0;                // steps done in this attempt
    std::optional<double> heard_ms;  // age of its newest heartbeat
    std::vector<std::pair<std::string, double>> lanes_ms;  // busy time of lanes for each step
    std::optional<int64_t> resident_bytes;  // nothing: the rank is on another machine
};

// A job at one moment.
struct JobView {
    KnownJob job;
    // The newest lines of metrics: all that fit into kTailBytes of metrics.jsonl, or only the
    // newest line if the job keeps no results.
    MetricsTable metrics;
    std::optional<int64_t> steps;  // steps of the whole job; nothing: not known
    std::vector<RankView> ranks;

    static constexpr int64_t kTailBytes = int64_t{4} << 20;

    // Returns the newest step; nothing before the first one.
    [[nodiscard]] std::optional<int64_t> step() const;
    // Estimates how long the remaining steps take at the median speed, in seconds. Returns nothing
    // if this is not known.
    [[nodiscard]] std::optional<double> left_s() const;
    // Returns the growth of the sum NAME in the newest step; nothing if it is not known.
    [[nodiscard]] std::optional<double> newest_growth(std::string_view name) const;
};

// The planned steps of runs. run.json is read again only after it was changed.
class PlannedSteps {
  public:
    // Returns the value of dslaunch.steps in run.json of JOB's output folder; nothing if the value
    // is not there yet, or if the file belongs to another job.
    [[nodiscard]] std::optional<int64_t> of(const KnownJob& job);

  private:
    struct Known {
        std::filesystem::file_time_type changed_at;
        std::string job;  // the job that wrote the file
        std::optional<int64_t> steps;
    };
    std::map<std::string, Known> known_;  // by folder
};

// Returns the view of JOB at this moment.
[[nodiscard]] JobView view_job(const KnownJob& job, PlannedSteps& planned);

}  // namespace dslaunch::launcher
