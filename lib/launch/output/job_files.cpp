#include "launch/output/job_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/new_files.h"
#include "base/text.h"
#include "launch/files/append_file.h"
#include "launch/files/file_facts.h"
#include "launch/metrics/metrics_file.h"
#include "launch/metrics/metrics_sink.h"

namespace dslaunch::launch {
namespace {

constexpr const char* kOtherOutput = "give another folder with --output";

// Returns the error for an OUTPUT folder that was moved or removed while the job ran.
Error lost_output(const std::string& output, bool trains) {
    return {ExitCode::kDisk,
            fmt::format("{}: this folder was moved or removed while the job ran, so nothing more "
                        "was written there{}",
                        printable(output),
                        trains ? ": if you moved it, its checkpoints are in it, and the same "
                                 "command with --output NEWNAME --resume goes on from them; if you "
                                 "removed it, they are gone, and the next run starts at step 1"
                               : "")};
}

}  // namespace

// The open files. Only the writer's thread uses them.
struct JobFiles::Files {
    struct Rank {
        UniqueFd log;
        UniqueFd own_log;  // in `each`
    };

    std::string output;
    std::string each;
    // Null if there is no output folder, or if the target is not a model. A program has no metrics
    // for the launcher, and its engine may write this folder's metrics.jsonl itself.
    std::unique_ptr<MetricsFeed> metrics;
    UniqueFd claim;  // of a program's logs
    std::vector<Rank> ranks;
    bool trains = false;
    bool has_run_file = false;            // true if an earlier run left its run.json
    std::optional<Error> run_file_error;  // why the newest run.json could not be written

    void open(TargetKind target) {
        if (!each.empty()) make_folder_for(each, kOtherOutput);
        if (output.empty()) return;
        make_folder_for(output, kOtherOutput);
        if (target == TargetKind::kModel) {
            std::vector<std::unique_ptr<MetricsSink>> sinks;
            // This sink locks metrics.jsonl, so it is opened first. Until then, another job may
            // have the lock. If that job is refused, it may remove the files that it made in this
            // folder.
            sinks.push_back(std::make_unique<MetricsFile>(output));
            metrics = std::make_unique<MetricsFeed>(std::move(sinks));
        }
        has_run_file = ::access((output + "/run.json").c_str(), F_OK) == 0;
        make_folder_for(output + "/logs", kOtherOutput);
        if (target != TargetKind::kModel) claim_logs();
    }

    // Locks the folder of logs against a different job, whose logs would be mixed with this job's.
    void claim_logs() {
        const std::string path = output + "/logs";
        claim = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (::flock(claim.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            fail(ExitCode::kCheckpoint,
                 "{}: another job is writing there: wait until it ends, or give another --output",
                 output);
    }

    void open_ranks(size_t count) {
        while (ranks.size() < count) {
            const std::string name = fmt::format("/rank-{}.log", ranks.size());
            Rank rank;
            if (!output.empty()) rank.log = open_for_append(output + "/logs" + name);
            if (!each.empty()) rank.own_log = open_for_append(each + name);
            ranks.push_back(std::move(rank));
        }
    }

    int write(const Rank& rank, std::string_view text) const {
        const int status = append(rank.log, text);
        const int own_status = append(rank.own_log, text);
        return status != 0 ? status : own_status;
    }
};

JobFiles::JobFiles(const JobSpec& spec, int wake_fd)
    : place_(spec.output_directory.empty() ? spec.log.each_rank_directory : spec.output_directory),
      output_(spec.output_directory),
      wake_fd_(wake_fd),
      files_(std::make_shared<Files>()),
      writer_(place_) {
    files_->output = output_;
    files_->trains = spec.target_kind == TargetKind::kModel && spec.duty == ModelDuty::kTrain;
    files_->each = spec.log.each_rank_directory;
    if (!place_.empty())
        writer_.run_and_wait([files = files_, target = spec.target_kind] { files->open(target); },
                             wake_fd_, opening());
    keeps_run_file_ = files_->has_run_file && spec.target_kind == TargetKind::kModel;
    open_ranks(spec.world_size);
    if (spec.monitors.any()) monitors_ = std::make_unique<Monitors>(spec.monitors, wake_fd_);
}

JobFiles::~JobFiles() {
    if (monitors_ != nullptr) monitors_->finish(kBrief);
    static_cast<void>(writer_.wait(kBrief, wake_fd_));
}

std::string JobFiles::opening() const {
    return fmt::format("the files below {} were being opened", place_);
}

void JobFiles::open_ranks(int world_size) {
    if (world_size <= world_size_) return;
    world_size_ = world_size;
    if (place_.empty()) return;
    writer_.run_and_wait([files = files_, world_size] { files->open_ranks(world_size); }, wake_fd_,
                         opening());
}

void JobFiles::rank_lines(int rank, std::string_view text) {
    if (place_.empty()) return;
    const auto write = [files = files_, rank, kept = std::string(text)] {
        return files->write(files->ranks.at(rank), kept);
    };
    static_cast<void>(writer_.post(write, text.size()));
}

void JobFiles::mark_logs(std::string_view line) {
    for (int rank = 0; rank < world_size_; ++rank) rank_lines(rank, std::string(line) + "\n");
}

void JobFiles::metrics(const MetricsRecord& record) {
    if (monitors_ != nullptr) monitors_->add(record);
    if (files_->metrics == nullptr) return;
    const auto write = [files = files_, record] { return files->metrics->add(record); };
    static_cast<void>(writer_.post(write, 2 * record.line.size() + 1));
}

void JobFiles::run_file(std::string text) {
    if (output_.empty() || keeps_run_file_) return;
    const size_t bytes = text.size();
    const auto write = [files = files_, kept = std::move(text)] {
        files->run_file_error.reset();
        try {
            write_file_atomically(files->output + "/run.json", kept, 0600);
        } catch (const Error& error) {
            files->run_file_error =
                is_missing(files->output) ? lost_output(files->output, files->trains) : error;
        }
        return 0;
    };
    static_cast<void>(writer_.post(write, bytes));
}

std::string JobFiles::take_news() {
    const std::string of_monitors = monitors_ == nullptr ? "" : monitors_->take_news();
    if (!of_monitors.empty() || place_.empty()) return of_monitors;
    if (const int error = writer_.take_failure(); error != 0) {
        return fmt::format(
            "dslaunch: writing to {} failed: {}; logs and metrics are incomplete from now on",
            place_, errno_text(error));
    }
    return writer_.take_news();
}

void JobFiles::finish(std::chrono::milliseconds standstill_max) {
    if (monitors_ != nullptr) monitors_->finish(standstill_max);
    if (place_.empty()) return;
    if (!writer_.wait(standstill_max, wake_fd_)) {
        fail(ExitCode::kDisk,
             "{} bytes of logs, metrics and run.json were not written: {} accepts no data",
             writer_.kept_bytes(), place_);
    }
    if (files_->run_file_error) throw Error(*files_->run_file_error);
}

}  // namespace dslaunch::launch
