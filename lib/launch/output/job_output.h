// The output of one attempt at a job: the ranks' lines, the progress, the metrics, run.json and the
// launcher's own notes, on the terminal, in log files and in the job's record. Each line is one
// write. One thread.
#pragma once

#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "launch/agent/machine_facts.h"
#include "launch/jobs/job_record.h"
#include "launch/output/job_files.h"
#include "launch/output/line_printer.h"
#include "launch/output/progress_line.h"
#include "launch/output/rank_lines.h"
#include "launch/output/run_file.h"
#include "launch/plan/job_spec.h"
#include "launch/process/standard_streams.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Takes the records of `dslaunch health` as they arrive, by rank.
using HealthSink = std::function<void(int rank, std::string_view record)>;

// Takes the lines of metrics as they arrive, without newlines.
using MetricsTap = std::function<void(std::string_view line)>;

// The exit code of a job of scripts or programs after its stdout was closed by the reader: the code
// that a shell reports for SIGPIPE.
inline constexpr int kOutputLostCode = 128 + SIGPIPE;

// Sends each piece of an attempt's output to the places that it belongs to.
class JobOutput {
  public:
    // Opens logs in FILES for every rank; throws as JobFiles::open_ranks() does. RECORD (may be
    // null) is informed of the job's events. CLOCK: null means the system's clock. All must outlive
    // this object.
    JobOutput(const JobSpec& spec, StandardStreams& streams, JobFiles& files,
              JobRecord* record = nullptr, const Clock* clock = nullptr);
    JobOutput(const JobOutput&) = delete;
    JobOutput& operator=(const JobOutput&) = delete;

    // Adds LINE, a line of the launcher itself, to the end of every rank's log file.
    void mark_logs(std::string_view line);
    // Writes LINE, a line of the launcher itself, to the log files and the record. Also writes it
    // on stderr if debug lines are shown.
    void detail(std::string_view line);
    // Writes one or more lines of the launcher itself on stderr. If stderr is a terminal, the lines
    // are wrapped between words at the terminal's width.
    void note(std::string_view line);

    // Returns the lines of the ranks.
    [[nodiscard]] RankLines& ranks() { return ranks_; }
    [[nodiscard]] const RankLines& ranks() const { return ranks_; }
    // Returns the facts for run.json and --print-env; the caller may add facts.
    [[nodiscard]] RunFile& run_file() { return run_file_; }
    // Causes run.json to be written soon, with EXIT_CODE. -1: the job is still running.
    void write_run_file(int exit_code);
    // Records that the first step has begun, and lets run.json be written.
    void begin_steps() {
        files_.begin_steps();
        write_run_file(-1);
    }
    // Prints on stderr the environment that the started ranks really got (describe_environments).
    void print_environments();

    // Writes LINE, one line of metrics without a newline.
    void metrics(std::string_view line);
    // Returns the newest step of this attempt that has a line of metrics; 0 if no step has one.
    [[nodiscard]] int64_t newest_step() const { return newest_step_; }
    // Sends the records of a health check to SINK from now on.
    void tell_health_to(HealthSink sink) { health_ = std::move(sink); }
    // Sends the lines of metrics also to TAP from now on.
    void tell_metrics_to(MetricsTap tap) { tap_ = std::move(tap); }
    // Passes RECORD, a record of a health check, to the sink, if there is one.
    void health(int rank, std::string_view record) const {
        if (health_) health_(rank, record);
    }

    // Returns the job's record; null if there is none.
    [[nodiscard]] JobRecord* record() const { return record_; }
    // Returns the job's record if it is time to record the state of the ranks there; else null.
    [[nodiscard]] JobRecord* record_for_ranks() const {
        return record_ != nullptr && record_->wants_ranks() ? record_ : nullptr;
    }

    // Shows a progress line of rank 0; if a terminal is too narrow, the last fields are left out.
    void progress(std::string_view line);
    // Sets and shows the launcher's current work; see ProgressLine::set_work().
    void begin_work(std::string_view what);
    // Shows rank 0's progress from now on; see ProgressLine::set_rank_progress().
    void rank_progress(std::string_view text) { progress_.set_rank_progress(text); }
    // Shows the job's progress (ProgressLine). Call it often.
    void tell_progress();

    // Prints the news about files that could not be written.
    void tell_news();
    // Returns the streams of the terminal and pipes, which keep text that cannot be written now.
    [[nodiscard]] StandardStreams& streams() { return printer_.streams(); }
    // Returns true if the job's purpose is its output and nobody reads its stdout any more. For
    // another kind of job it returns false, and the first call reports that nobody reads.
    [[nodiscard]] bool is_lost();
    // Returns the reason why lines were lost on stdout or stderr, such as a full disk; empty if no
    // line was lost, or if the job's results are not files. A terminal that was closed (EIO) does
    // not count: nobody expects its lines.
    [[nodiscard]] std::string lost_lines_text() const;

  private:
    const JobSpec& spec_;
    JobFiles& files_;
    JobRecord* record_;
    LinePrinter printer_;
    RankLines ranks_;
    RunFile run_file_;
    ProgressLine progress_;
    HealthSink health_;
    MetricsTap tap_;
    int64_t newest_step_ = 0;
    bool has_told_of_loss_ = false;
    bool has_told_of_fault_ = false;
};

}  // namespace dslaunch::launch
