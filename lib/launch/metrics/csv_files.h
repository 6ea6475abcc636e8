// The CSV files of DeepSpeed's csv_monitor. Data path: MetricsFeed -> [here] -> disk. One thread;
// may block on the disk.
#pragma once

#include <string>

#include "launch/metrics/metrics_sink.h"

namespace dslaunch::launch {

// Writes one file for each event, in one folder: Train_Samples_lr.csv has the header `step,lr` and
// one row for each step, with the number of samples and the value, as in DeepSpeed; lines end with
// CR LF, as Python's csv module writes them.
//
// A job that continues a run appends to its files and first removes the rows that it will write
// again, and a row that a killed job left incomplete. A new run moves the files of an earlier run
// into the folder earlier-N. No file stays open between records.
class CsvFiles final : public MetricsSink {
  public:
    // FOLDER exists.
    explicit CsvFiles(std::string folder) : folder_(std::move(folder)) {}

    int begin(int64_t samples, bool is_new_run) override;
    int write(const MetricsRecord& record, int64_t samples) override;
    [[nodiscard]] std::string name() const override;

  private:
    std::string folder_;
};

}  // namespace dslaunch::launch
