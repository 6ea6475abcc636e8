// Writes the words of the ranks to terminal, log files, metrics.jsonl and run.json, in one attempt
// at a job. One line is one write. One thread.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launch/agent/machine_facts.h"
#include "launch/files/file_writer.h"
#include "launch/jobs/job_record.h"
#include "launch/plan/job_spec.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/line_splitter.h"
#include "launch/process/standard_streams.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// The files of a job below --output and --log-each-rank's folder: a log for each rank,
// metrics.jsonl, run.json. They are open from the first attempt to the last. Their own thread
// writes them (files/file_writer.h): a disk that stands still does not hold up the job.
class JobFiles {
  public:
    // The longest wait for a disk that stands still, at the end of a job.
    static constexpr std::chrono::milliseconds kLastWordsMax{60'000};
    static constexpr std::chrono::milliseconds kBrief{2'000};

    // Opens the files in SPEC's folders to append to them, with logs for its world size. A signal
    // at WAKE_FD, or -1, ends the wait for a disk that does not answer. Throws Error{kDisk} that
    // names the path that cannot be written, Error{kCheckpoint} when another job writes there,
    // Error{kInterrupted}.
    explicit JobFiles(const JobSpec& spec, int wake_fd = -1);
    JobFiles(const JobFiles&) = delete;
    JobFiles& operator=(const JobFiles&) = delete;
    // Waits as finish() does, for kBrief at most.
    ~JobFiles();

    // Opens logs for more ranks; throws as the constructor does.
    void open_ranks(int world_size);
    // Writes TEXT, whole lines of RANK.
    void rank_lines(int rank, std::string_view text);
    // One line of ours at the end of every rank's log.
    void mark_logs(std::string_view line);
    void metrics(std::string_view line);
    // Replaces run.json.
    void run_file(std::string text);
    // Returns one line about failed writes, each once; empty: no news.
    [[nodiscard]] std::string take_news();
    // Waits until all is written. Throws Error{kDisk} when run.json could not be written, or when
    // the disk stood still for STANDSTILL_MAX or a signal came at WAKE_FD before it was.
    void finish(std::chrono::milliseconds standstill_max = kLastWordsMax);

  private:
    struct Files;
    void run_and_wait(const std::function<void()>& work);

    std::string place_;  // the folder for messages; empty: there are no files
    std::string output_;
    int wake_fd_;
    int world_size_ = 0;
    std::shared_ptr<Files> files_;
    FileWriter writer_;
};

// Takes the records of `dslaunch health` as they come, by rank.
using HealthSink = std::function<void(int rank, std::string_view record)>;

// The exit code of a job of scripts or programs whose output nobody reads, as after SIGPIPE.
inline constexpr int kOutputLostCode = 128 + SIGPIPE;

class JobOutput {
  public:
    // Opens logs in FILES for every rank; throws what JobFiles::open_ranks() does. RECORD (may be
    // null) gets what happens. CLOCK: null is the system's. All must outlive this object.
    JobOutput(const JobSpec& spec, StandardStreams& streams, JobFiles& files,
              JobRecord* record = nullptr, const Clock* clock = nullptr);
    JobOutput(const JobOutput&) = delete;
    JobOutput& operator=(const JobOutput&) = delete;
    ~JobOutput() { streams_.show_moving({}); }

    // One line of ours at the end of every rank's log file.
    void mark_logs(std::string_view line);
    void set_restarts(int restarts) { restarts_ = restarts; }
    // Returns the newest step with a line of metrics in this attempt; 0: no step.
    [[nodiscard]] int64_t newest_step() const { return newest_step_; }
    // Expects MESSAGE, which RANK gave as the reason of its failure; the report will say it. The
    // same text among later lines goes to the log files only.
    void expect_failure_text(int rank, std::string_view message);
    // Shows LINES of one rank: whole ones, and of a program also the beginning of a last one. Text
    // after a carriage return later replaces that beginning.
    void lines(int rank, OutputStream stream, std::string_view lines);
    void metrics(std::string_view line);
    void run_info(std::string_view json) { run_info_ = json; }
    // Shows a progress line of rank 0; a terminal that is too narrow leaves out its last fields.
    void progress(std::string_view line);
    // Says WHAT this launcher does from now on, as "reaching 4 hosts", while rank 0 reports no
    // progress; empty: no long work.
    void begin_work(std::string_view what);
    // Takes rank 0's progress (Heartbeat::progress) in place of this launcher's work; empty:
    // nothing to show.
    void rank_progress(std::string_view text) {
        work_.clear();
        rank_progress_ = text;
    }
    // Shows the job's progress: on a terminal as its last line, which moves; elsewhere as a line
    // each kToldEach without another progress line. Not for scripts and programs: it would disturb
    // their own output. Called often.
    void tell_progress();
    // SINK gets the records of a health check from now on.
    void tell_health_to(HealthSink sink) { health_ = std::move(sink); }
    void health(int rank, std::string_view record) const {
        if (health_) health_(rank, record);
    }
    // Writes a line of ours to log files and record; on stderr with debug lines only.
    void detail(std::string_view line);
    // Writes one or more lines of ours on stderr; on a terminal broken between words at its width.
    void note(std::string_view line);
    // FACTS: null if the agent is on this machine.
    void add_node(const AgentHello& hello, const std::string& name,
                  const MachineFacts* facts = nullptr);
    void add_rank(const WorkerStarted& started);
    // Prints on stderr the environment that the started ranks really got (describe_environments).
    void print_environments();
    // Writes run.json, soon; EXIT_CODE -1: still running.
    void write_run_file(int exit_code);
    // Prints the news about files that could not be written.
    void tell_news();
    // Returns terminal and pipes; text that they do not take now is kept there.
    [[nodiscard]] StandardStreams& streams() { return streams_; }
    // Returns true if the job's purpose is its output and nobody reads its stdout any more. Another
    // job goes on, and the first call says so.
    [[nodiscard]] bool is_lost();

    // Returns the last lines of a rank, the oldest first.
    [[nodiscard]] const std::deque<std::string>& last_lines(int rank) const;

  private:
    struct Rank {
        std::string host;
        std::deque<std::string> last_lines;
        std::deque<std::string> told_lines;  // lines of a failure's message that are still to come
        WorkerStarted started;
        LinePieces pieces[2];                 // of a program's stdout and stderr
        std::optional<OutputStream> in_file;  // the stream whose line is open in the log file
    };
    void program_lines(int rank, OutputStream stream, std::string_view bytes);
    void file_bytes(int rank, OutputStream stream, std::string_view bytes);
    void remember(Rank& from, std::string_view line);
    [[nodiscard]] std::string prefix_of(int rank) const;
    [[nodiscard]] std::string cut_to(int fd, std::string text) const;
    [[nodiscard]] static bool is_told(Rank& rank, std::string_view line);
    void show_line(int rank, std::string_view line, const std::optional<LoggedLine>& logged);
    [[nodiscard]] bool shows_details() const { return spec_.log.level == "debug"; }
    void print(int fd, const std::string& line) { streams_.write(fd, line); }

    const JobSpec& spec_;
    StandardStreams& streams_;
    JobFiles& files_;
    HealthSink health_;
    JobRecord* record_;
    int restarts_ = 0;
    int64_t newest_step_ = 0;
    std::vector<Rank> ranks_;
    std::vector<std::string> node_names_;
    std::vector<AgentHello> nodes_;
    std::vector<std::optional<MachineFacts>> machines_;
    std::string run_info_;
    bool stderr_is_terminal_;
    bool stdout_is_terminal_;
    bool has_colours_;
    bool told_of_loss_ = false;
    SystemClock system_clock_;
    const Clock& clock_;
    std::string work_;  // this launcher's
    TimePoint work_began_;
    std::string rank_progress_;
    std::string moving_;  // the line that was shown last; empty: none is there
    TimePoint told_at_;   // when the newest line told the progress
};

struct RankVariables {
    int rank = 0;
    std::string host;
    EnvironmentList variables;  // environment of the rank
};

// Returns the text of --print-env, the environment that the ranks really got: once the equal
// variables, then the different ones, by host. Values of secrets are hidden. Different variables
// that dslaunch writes for each rank are only named. Ends with a newline.
[[nodiscard]] std::string describe_environments(std::span<const RankVariables> ranks);

}  // namespace dslaunch::launch
