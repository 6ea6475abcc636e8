// TensorBoard's event files. Data path: MetricsFeed -> [here] -> disk. One thread; may block on the
// disk.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/fd.h"
#include "launch/metrics/metrics_sink.h"

namespace dslaunch::launch {

// Writes the event files of a job into one folder. The axis ("step" in TensorBoard) is the number
// of samples, as in DeepSpeed. Each record is one message, written by one system call. Every
// begin() starts a new file, as every start of DeepSpeed does, and keeps the earlier files. So it
// never appends to a file that a killed job left incomplete. The first message of the new file
// makes TensorBoard discard the values that will be written again. For a new run, TensorBoard
// discards all earlier values.
class EventFiles final : public MetricsSink {
  public:
    // FOLDER exists. Opens no file before the first record.
    explicit EventFiles(std::string folder) : folder_(std::move(folder)) {}

    int begin(int64_t samples, bool is_new_run) override;
    // If the disk takes only a part of a record, removes that part, since TensorBoard could read
    // nothing after it. If the file was deleted, starts a new file.
    int write(const MetricsRecord& record, int64_t samples) override;
    [[nodiscard]] std::string name() const override;

  private:
    int open();
    int add(std::string_view message);

    std::string folder_;
    UniqueFd file_;
    off_t end_ = 0;          // end of the last whole record
    int64_t first_ = 0;      // values from this sample count on are written again
    int number_ = 0;         // number of the next file of this process
    bool has_tail_ = false;  // a part of a record could not be removed
};

}  // namespace dslaunch::launch
