// The files of a job below --output and --log-each-rank's folder: a log for each rank,
// metrics.jsonl, run.json. They are open from the first attempt to the last, and a thread of their
// own writes them (files/file_writer.h): a disk that stands still does not hold up the job. One
// thread uses an object.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launch/files/file_writer.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

class JobFiles {
  public:
    // At the end of a job a disk that stands still is waited for so long.
    static constexpr std::chrono::milliseconds kLastWordsMax{60'000};
    static constexpr std::chrono::milliseconds kBrief{2'000};

    // Opens what the folders of SPEC hold, to append to it; logs for its world size. A signal at
    // WAKE_FD, or -1, ends the wait for a disk that does not answer. Throws Error{kDisk} naming the
    // path that cannot be written, Error{kCheckpoint} when another job writes there,
    // Error{kInterrupted}.
    explicit JobFiles(const JobSpec& spec, int wake_fd = -1);
    JobFiles(const JobFiles&) = delete;
    JobFiles& operator=(const JobFiles&) = delete;
    // Waits as finish() does, for kBrief at most.
    ~JobFiles();

    // Opens logs for more ranks; throws as the constructor does.
    void open_ranks(int world_size);
    // TEXT: whole lines of RANK.
    void rank_lines(int rank, std::string_view text);
    // One line of ours at the end of every rank's log.
    void mark_logs(std::string_view line);
    void metrics(std::string_view line);
    // Replaces run.json.
    void run_file(std::string text);
    // Returns one line about what could not be written, each once; empty: nothing to tell.
    [[nodiscard]] std::string take_news();
    // Waits until all is written. Throws Error{kDisk} when run.json could not be, or when the disk
    // stood still for STANDSTILL_MAX or a signal came at WAKE_FD before it was.
    void finish(std::chrono::milliseconds standstill_max = kLastWordsMax);

  private:
    struct Files;
    void run_and_wait(const std::function<void()>& work);

    std::string place_;  // the folder that is named; empty: there are no files
    std::string output_;
    int wake_fd_;
    int world_size_ = 0;
    std::shared_ptr<Files> files_;
    FileWriter writer_;
};

}  // namespace dslaunch::launch
