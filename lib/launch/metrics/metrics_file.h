// metrics.jsonl in the folder of --output. Data path: MetricsFeed -> [here] -> disk. One thread;
// may block on the disk.
#pragma once

#include <string>

#include "base/fd.h"
#include "launch/metrics/metrics_sink.h"

namespace dslaunch::launch {

// Appends each record's line to metrics.jsonl. A job that continues a run appends to its file; if a
// step is repeated, its last line counts. A new run renames an earlier run's file to
// metrics-N.jsonl.
class MetricsFile final : public MetricsSink {
  public:
    // Opens the file in FOLDER and removes an incomplete last line, which a killed launcher may
    // have left. A lock on the file is held until the launcher has ended. Throws Error{kDisk} that
    // names the path, and Error{kCheckpoint} if another job writes there.
    explicit MetricsFile(std::string folder);

    // Returns true if a job holds the lock on the file in FOLDER. Writes nothing.
    [[nodiscard]] static bool is_held(const std::string& folder);

    [[nodiscard]] bool needs_place() const override { return false; }
    int begin(int64_t samples, bool is_new_run) override;
    int write(const MetricsRecord& record, int64_t samples) override;
    [[nodiscard]] std::string name() const override { return path(); }

  private:
    [[nodiscard]] std::string path() const { return folder_ + "/metrics.jsonl"; }
    void lock() const;
    int set_aside();

    std::string folder_;
    UniqueFd file_;
};

}  // namespace dslaunch::launch
