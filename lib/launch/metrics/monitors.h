// The monitors of a job: TensorBoard's event files, csv_monitor's files, a file for Prometheus. A
// thread of their own writes them, so that a slow folder delays neither the job nor its logs. They
// run in the launcher, so they do not need a rank to be alive. Data path: JobFiles -> [here] ->
// sinks. One thread calls.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "launch/files/file_writer.h"
#include "launch/metrics/metrics_record.h"
#include "launch/plan/monitor_settings.h"

namespace dslaunch::launch {

// Writes to the monitors; see the top of this file.
class Monitors {
  public:
    static constexpr int kTurnsMax = 3;  // see finish()

    // Makes the folders, and locks them and the file for Prometheus until the launcher has ended.
    // If WAKE_FD (-1: none) becomes readable, the wait for a disk that does not answer ends. Throws
    // Error{kDisk} that names a folder which cannot be written, Error{kCheckpoint} if another job
    // writes there, and Error{kInterrupted}.
    Monitors(const MonitorSettings& settings, int wake_fd);
    Monitors(const Monitors&) = delete;
    Monitors& operator=(const Monitors&) = delete;

    // Queues RECORD; never waits.
    void add(const MetricsRecord& record);
    // Returns one line about writes that failed or are late, each only once; empty if there is no
    // news. A failed write never ends a job.
    [[nodiscard]] std::string take_news();
    // Ends the monitors. Waits until everything is written or nothing was written for
    // STANDSTILL_MAX, but for at most kTurnsMax times STANDSTILL_MAX.
    void finish(std::chrono::milliseconds standstill_max);

  private:
    struct Places;

    bool has_loss_scale_;
    int wake_fd_;
    std::shared_ptr<Places> places_;  // shared with queued work, which may outlive this object
    FileWriter writer_;
    bool has_finished_ = false;
};

}  // namespace dslaunch::launch
