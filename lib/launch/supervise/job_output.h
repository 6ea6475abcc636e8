// The words of the ranks go to terminal, log files, metrics.jsonl and run.json, in one attempt at a
// job. One line is one write. One thread.
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
// metrics.jsonl, run.json. They are open from the first attempt to the last, and a thread of their
// own writes them (files/file_writer.h): a disk that stands still does not hold up the job.
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

// Takes the records of `dslaunch health` as they come, by rank.
using HealthSink = std::function<void(int rank, std::string_view record)>;

// The exit code of a job of scripts or programs whose output nobody reads: as if SIGPIPE had ended
// it.
inline constexpr int kOutputLostCode = 128 + SIGPIPE;

class JobOutput {
  public:
    // FILES have logs for every rank from here on; throws what JobFiles::open_ranks() does. RECORD,
    // which may be null, is told what happens. CLOCK: null is the system's. All must outlive this
    // object.
    JobOutput(const JobSpec& spec, StandardStreams& streams, JobFiles& files,
              JobRecord* record = nullptr, const Clock* clock = nullptr);
    JobOutput(const JobOutput&) = delete;
    JobOutput& operator=(const JobOutput&) = delete;
    ~JobOutput() { streams_.show_moving({}); }

    // One line of ours at the end of every rank's log file.
    void mark_logs(std::string_view line);
    void set_restarts(int restarts) { restarts_ = restarts; }
    // The newest step that a line of metrics was about, in this attempt; 0: none.
    [[nodiscard]] int64_t newest_step() const { return newest_step_; }
    // RANK told MESSAGE as the reason of its failure; the report will say it. The same text among
    // the lines that come goes to the log files only.
    void expect_failure_text(int rank, std::string_view message);
    // LINES of one rank: whole ones, and of a program also the beginning of a last one, which is
    // shown and later replaced by what follows a carriage return.
    void lines(int rank, OutputStream stream, std::string_view lines);
    void metrics(std::string_view line);
    void run_info(std::string_view json) { run_info_ = json; }
    // A line of rank 0 on how far it is; on a terminal that is too narrow its last fields are left
    // out.
    void progress(std::string_view line);
    // Says WHAT this launcher does from now on, as "reaching 4 hosts", while rank 0 says nothing of
    // its own; empty: nothing that takes long.
    void begin_work(std::string_view what);
    // Takes what rank 0 says of its progress (Heartbeat::progress) in place of what this launcher
    // does; empty: nothing is to be told.
    void rank_progress(std::string_view text) {
        work_.clear();
        rank_progress_ = text;
    }
    // Shows how far the job is: on a terminal as its last line, which moves, elsewhere as a line
    // each kToldEach in which no other told it. Never of scripts and programs, whose own output it
    // would disturb. Called often.
    void tell_progress();
    // SINK is told the records of a health check from now on.
    void tell_health_to(HealthSink sink) { health_ = std::move(sink); }
    void health(int rank, std::string_view record) const {
        if (health_) health_(rank, record);
    }
    // A line of ours for log files and record; on stderr with debug lines only.
    void detail(std::string_view line);
    // A line of ours on stderr, or several; on a terminal broken between words at its width.
    void note(std::string_view line);
    // FACTS: null where the agent is on this machine.
    void add_node(const AgentHello& hello, const std::string& name,
                  const MachineFacts* facts = nullptr);
    void add_rank(const WorkerStarted& started);
    // Prints on stderr what the ranks that were started really got (describe_environments).
    void print_environments();
    // Writes run.json, soon; EXIT_CODE -1: still running.
    void write_run_file(int exit_code);
    // Prints what there is to tell about files that could not be written.
    void tell_news();
    // Terminal and pipes; what they do not take now is kept there.
    [[nodiscard]] StandardStreams& streams() { return streams_; }
    // The reader of what the ranks of a script or program write to stdout is gone. For a .pt, which
    // goes on, that is said once, here.
    [[nodiscard]] bool is_lost();

    // The last lines that a rank wrote, the oldest first.
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

// Returns the text of --print-env, the environment that the ranks really got: once what is equal
// everywhere, then what differs, by host. Values of secrets are hidden. Variables that dslaunch
// writes for each rank and that differ are only named. Ends with a newline.
[[nodiscard]] std::string describe_environments(std::span<const RankVariables> ranks);

}  // namespace dslaunch::launch
