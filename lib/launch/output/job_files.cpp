#include "launch/output/job_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/new_files.h"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::hours kLongOpen{24};

void make_folder(const std::string& path) {
    if (const int status = make_folders(path); status != 0)
        fail(ExitCode::kDisk, "{}: cannot be made: {}; name another folder with --output", path,
             errno_text(status));
}

UniqueFd open_for_append(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file.valid()) fail(ExitCode::kDisk, "{}: cannot be written: {}", path, errno_text(errno));
    return file;
}

// Removes an incomplete last line, which a killed launcher may have left.
void cut_torn_line(const UniqueFd& file, const std::string& path) {
    off_t end = ::lseek(file.get(), 0, SEEK_END);
    char byte = '\n';
    while (end > 0 && ::pread(file.get(), &byte, 1, end - 1) == 1 && byte != '\n') --end;
    if (::ftruncate(file.get(), end) != 0) {
        fail(ExitCode::kDisk, "{}: its torn last line cannot be cut: {}", path, errno_text(errno));
    }
}

int append(const UniqueFd& file, std::string_view bytes) {
    return file.valid() ? write_full(file.get(), bytes) : 0;
}

}  // namespace

// Used by the writer's thread only.
struct JobFiles::Files {
    struct Rank {
        UniqueFd log;
        UniqueFd own_log;  // in `each`
    };

    std::string output;
    std::string each;
    UniqueFd metrics;
    bool has_metrics = false;  // of this job
    std::vector<Rank> ranks;
    std::optional<Error> run_file_error;  // of the newest run.json

    void open() {
        if (!each.empty()) make_folder(each);
        if (output.empty()) return;
        make_folder(output + "/logs");
        const std::string path = output + "/metrics.jsonl";
        metrics = open_for_append(path);
        // The lock is held until the launcher has ended: a file with the lines of two jobs would be
        // useless.
        if (::flock(metrics.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) {
                fail(ExitCode::kCheckpoint,
                     "{}: another job is writing there: wait for its end, or give another --output",
                     output);
            }
            log_warn("launch", "{} cannot be locked: {}; let no other job write there", path,
                     errno_text(errno));
        }
        cut_torn_line(metrics, path);
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

    // Appends LINE. If the folder contains an earlier run's metrics and LINE is the job's first
    // step, the earlier file is renamed to metrics-N.jsonl, and a new file begins.
    int write_metrics(const std::string& line) {
        // The held-out loss before the first step has step 0.
        const bool begins = !has_metrics && step_of_metrics(line).value_or(2) <= 1;
        has_metrics = true;
        if (begins && ::lseek(metrics.get(), 0, SEEK_END) > 0) {
            if (const int status = set_metrics_aside(); status != 0) return status;
        }
        return append(metrics, line);
    }

    int set_metrics_aside() {
        const std::string path = output + "/metrics.jsonl";
        for (int number = 1;; ++number) {
            const std::string other = fmt::format("{}/metrics-{}.jsonl", output, number);
            if (::link(path.c_str(), other.c_str()) == 0) break;
            if (errno != EEXIST) return -errno;
        }
        if (::unlink(path.c_str()) != 0) return -errno;
        UniqueFd begun = open_for_append(path);
        static_cast<void>(::flock(begun.get(), LOCK_EX | LOCK_NB));
        metrics = std::move(begun);
        return 0;
    }

    int write(const Rank& rank, std::string_view text) const {
        const int status = append(rank.log, text);
        const int own_status = append(rank.own_log, text);
        return status != 0 ? status : own_status;
    }
};

std::optional<int64_t> step_of_metrics(std::string_view line) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
    const auto step = record.is_object() ? record.find("step") : record.end();
    if (step == record.end() || !step->is_number_integer()) return std::nullopt;
    return step->get<int64_t>();
}

JobFiles::JobFiles(const JobSpec& spec, int wake_fd)
    : place_(spec.output_directory.empty() ? spec.log.each_rank_directory : spec.output_directory),
      output_(spec.output_directory),
      wake_fd_(wake_fd),
      files_(std::make_shared<Files>()),
      writer_(place_) {
    files_->output = output_;
    files_->each = spec.log.each_rank_directory;
    run_and_wait([files = files_] { files->open(); });
    open_ranks(spec.world_size);
}

JobFiles::~JobFiles() {
    static_cast<void>(writer_.wait(kBrief, wake_fd_));
}

void JobFiles::run_and_wait(const std::function<void()>& work) {
    if (place_.empty()) return;
    const auto error = std::make_shared<std::exception_ptr>();
    const auto run = [work, error] {
        try {
            work();
        } catch (const Error&) {
            *error = std::current_exception();
        }
        return 0;
    };
    static_cast<void>(writer_.post(run, 0));
    if (!writer_.wait(kLongOpen, wake_fd_)) {
        fail(ExitCode::kInterrupted, "interrupted while the files below {} were being opened",
             place_);
    }
    if (*error != nullptr) std::rethrow_exception(*error);
}

void JobFiles::open_ranks(int world_size) {
    if (world_size <= world_size_) return;
    world_size_ = world_size;
    run_and_wait([files = files_, world_size] { files->open_ranks(world_size); });
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

void JobFiles::metrics(std::string_view line) {
    if (output_.empty()) return;
    const auto write = [files = files_, kept = std::string(line) + "\n"] {
        return files->write_metrics(kept);
    };
    static_cast<void>(writer_.post(write, line.size() + 1));
}

void JobFiles::run_file(std::string text) {
    if (output_.empty()) return;
    const size_t bytes = text.size();
    const auto write = [files = files_, kept = std::move(text)] {
        files->run_file_error.reset();
        try {
            write_file_atomically(files->output + "/run.json", kept, 0600);
        } catch (const Error& error) {
            files->run_file_error = error;
        }
        return 0;
    };
    static_cast<void>(writer_.post(write, bytes));
}

std::string JobFiles::take_news() {
    if (place_.empty()) return "";
    if (const int error = writer_.take_failure(); error != 0) {
        return fmt::format(
            "dslaunch: writing below {} failed: {}; logs and metrics are incomplete from here on",
            place_, errno_text(error));
    }
    return writer_.take_news();
}

void JobFiles::finish(std::chrono::milliseconds standstill_max) {
    if (place_.empty()) return;
    if (!writer_.wait(standstill_max, wake_fd_)) {
        fail(ExitCode::kDisk,
             "{} bytes of logs, metrics and run.json are not written: {} stands still",
             writer_.kept_bytes(), place_);
    }
    if (files_->run_file_error) throw Error(*files_->run_file_error);
}

}  // namespace dslaunch::launch
