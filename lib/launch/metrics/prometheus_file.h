// The newest step in Prometheus' text format, in a file for the textfile collector of
// node_exporter. Data path: MetricsFeed -> [here] -> disk. One thread; may block on the disk.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "launch/metrics/metrics_sink.h"

namespace dslaunch::launch {

// Keeps a file with a gauge for each event, such as dslaunch_train_loss{run="JOB"}, and with
// dslaunch_step, dslaunch_samples, dslaunch_running and the time of the newest step. The file is
// replaced as a whole, at most once in kEach, and at the end.
class PrometheusFile final : public MetricsSink {
  public:
    static constexpr std::chrono::seconds kEach{1};

    // RUN is the value of the label `run`. CLOCK must outlive this object.
    PrometheusFile(std::string path, std::string run, const Clock& clock)
        : path_(std::move(path)), run_(std::move(run)), clock_(clock) {}

    [[nodiscard]] bool needs_place() const override { return false; }
    int begin(int64_t samples, bool is_new_run) override;
    int write(const MetricsRecord& record, int64_t samples) override;
    // Writes the newest values, with dslaunch_running 0.
    int end() override;
    [[nodiscard]] std::string name() const override;

  private:
    [[nodiscard]] std::string text(bool is_running) const;
    int replace(bool is_running);

    std::string path_;
    std::string run_;
    const Clock& clock_;
    std::map<std::string, double> values_;  // the newest value of each gauge, by its name
    TimePoint written_at_{};
    bool is_written_ = false;  // true once the file was written
};

}  // namespace dslaunch::launch
