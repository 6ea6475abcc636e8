// The files of a job. Separate threads write them; one thread calls the functions.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "launch/files/file_writer.h"
#include "launch/metrics/monitors.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// The files of a job: a log for each rank, metrics.jsonl and run.json, in the folders of --output
// and --log-each-rank. Also passes metrics to the monitors, which may be in any folder. The files
// are open from the first attempt to the last. Separate threads write them (files/file_writer.h),
// so that a disk that does not answer does not delay the job.
class JobFiles {
  public:
    // The longest wait, at the end of a job, for a disk that does not answer.
    static constexpr std::chrono::milliseconds kLastWordsMax{60'000};
    static constexpr std::chrono::milliseconds kBrief{2'000};

    // Opens the files in SPEC's folders for appending, including a log for each of SPEC's ranks,
    // and opens SPEC's monitors. If WAKE_FD (-1: none) becomes readable because of a signal, the
    // wait for a disk that does not answer ends. Throws Error{kDisk}, naming the path, if a path
    // cannot be written, Error{kCheckpoint} if another job writes there, and Error{kInterrupted}.
    explicit JobFiles(const JobSpec& spec, int wake_fd = -1);
    JobFiles(const JobFiles&) = delete;
    JobFiles& operator=(const JobFiles&) = delete;
    // Waits as finish() does, for kBrief at most.
    ~JobFiles();

    // Opens logs for more ranks; throws as the constructor does.
    void open_ranks(int world_size);
    // Writes TEXT, whole lines of RANK.
    void rank_lines(int rank, std::string_view text);
    // Adds LINE, a line of the launcher itself, to the end of every rank's log.
    void mark_logs(std::string_view line);
    // Adds RECORD to metrics.jsonl and passes it to the monitors.
    void metrics(const MetricsRecord& record);
    // Replaces run.json. A training job keeps an earlier run's run.json until begin_steps(). A job
    // that is refused before its first step thus changes nothing.
    void run_file(std::string text);
    // Records that the first step has begun.
    void begin_steps() { keeps_run_file_ = false; }
    // Returns a line about writes that failed, and reports each failure only once; empty if there
    // is no news.
    [[nodiscard]] std::string take_news();
    // Waits until everything is written. Throws Error{kDisk} if run.json could not be written, if
    // nothing was written for STANDSTILL_MAX, or if WAKE_FD became readable first.
    void finish(std::chrono::milliseconds standstill_max = kLastWordsMax);

  private:
    struct Files;
    [[nodiscard]] std::string opening() const;

    std::string place_;  // the folder for messages; empty: there are no files
    std::string output_;
    int wake_fd_;
    int world_size_ = 0;
    bool keeps_run_file_ = false;
    std::shared_ptr<Files> files_;
    FileWriter writer_;
    std::unique_ptr<Monitors> monitors_;  // null: there are none
};

}  // namespace dslaunch::launch
