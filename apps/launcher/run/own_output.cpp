#include "launcher/run/own_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "launch/metrics/metrics_file.h"
#include "launch/output/run_record.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/huggingface/named_place.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuns = "runs";

// Returns true if the run in FOLDER has trained a step or written weights or a checkpoint.
bool has_results(const std::string& folder) {
    std::ifstream metrics(folder + "/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);)
        if (!line.empty() && line.find("\"step\": 0,") == std::string::npos) return true;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(folder + "/checkpoints", missing))
        if (entry.path().filename().string().starts_with("step-")) return true;
    return fs::exists(folder + "/model.safetensors", missing) ||
           fs::exists(folder + "/adapter", missing);
}

// Returns the newest folder in RUNS that belongs to a run of NAME and has a checkpoint; empty if
// there is none.
std::string newest_run(const std::string& runs, const std::string& name) {
    std::string newest;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(runs, missing)) {
        const std::string run = entry.path().filename().string();
        const bool is_of_name = run.starts_with(name + "-") && run.size() > name.size() + 1 &&
                                std::isdigit(static_cast<unsigned char>(run[name.size() + 1])) != 0;
        if (is_of_name && run > newest && fs::exists(entry.path() / "checkpoints/latest", missing))
            newest = run;
    }
    return newest;
}

[[noreturn]] void refuse_resume(const std::string& name, const std::string& directory) {
    const std::string newest = newest_run(fmt::format("{}/{}", directory, kRuns), name);
    fail(ExitCode::kUsage,
         "--resume: it is unclear which run to continue, since --output is not given. {}",
         newest.empty() ? "Add --output DIR, or give the checkpoint's folder: --resume=DIR"
                        : fmt::format("The newest run of {} is {}/{}: add -o {}/{}", name, kRuns,
                                      newest, kRuns, newest));
}

void remove_empty(const std::vector<std::string>& folders) {
    for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
        if (::rmdir(folder->c_str()) != 0) return;
}

// Makes FOLDER and the folders above it that are missing. Returns the new folders, the outermost
// first. Returns an empty list if FOLDER exists or cannot be made.
std::vector<std::string> make_with_parents(const std::string& folder) {
    std::vector<std::string> wanted, made;
    std::error_code missing;
    for (fs::path path = folder; path.has_relative_path() && !fs::exists(path, missing);
         path = path.parent_path())
        wanted.push_back(path.string());
    for (auto path = wanted.rbegin(); path != wanted.rend(); ++path)
        if (::mkdir(path->c_str(), 0777) == 0) made.push_back(*path);
    if (!made.empty() && made.back() == folder) return made;
    remove_empty(made);
    return {};
}

// Makes the --output folder of a training job, unless its name stands for a checkpoint of a run.
// Returns the new folders, as make_with_parents() does. If the list is empty, the job itself makes
// the folder or reports why it cannot.
std::vector<std::string> make_named_output(const RunOptions& options,
                                           const std::string& directory) {
    std::error_code missing;
    if (options.output.empty() || options.dry_run || !options.role.empty() || options.verifies ||
        target_kind_of(options) != launch::TargetKind::kModel ||
        !fs::exists(fs::path(directory) / options.working_directory / options.target, missing))
        return {};
    std::string folder = (fs::path(directory) / options.output).lexically_normal().string();
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    if (!fs::exists(folder, missing)) {  // RUN/best and RUN/latest name a checkpoint
        const storage::Place place = storage::place_at(path_from_here(folder));
        if (place.kind == storage::PlaceKind::kCheckpoint)
            storage::refuse_place(place, storage::PlaceUse::kResume, ExitCode::kCheckpoint);
    }
    return make_with_parents(folder);
}

// Returns true if FOLDER has no run.json, or the run.json of JOB. A job has a run.json as soon as a
// rank of it was started.
bool has_only(const std::string& job, const std::string& folder) {
    std::error_code missing;
    return !fs::exists(folder + "/run.json", missing) ||
           launch::read_run_record(folder).job_id == job;
}

// Returns true if the job's message fully explains an end with CODE, so that its few log lines
// (failure_report.cpp) add nothing.
bool is_told_whole(int code) {
    constexpr ExitCode kTold[] = {ExitCode::kUsage,      ExitCode::kConfig,     ExitCode::kInput,
                                  ExitCode::kHosts,      ExitCode::kSetup,      ExitCode::kDisk,
                                  ExitCode::kCheckpoint, ExitCode::kInterrupted};
    return std::ranges::find(kTold, static_cast<ExitCode>(code)) != std::end(kTold);
}

}  // namespace

bool needs_own_output(const RunOptions& options) {
    return options.output.empty() && !options.no_output && options.role.empty() &&
           !options.verifies && !options.target.empty() &&
           target_kind_of(options) == launch::TargetKind::kModel;
}

std::string own_output_name(const std::string& target, const std::string& directory,
                            std::time_t seconds) {
    std::tm local{};
    char date[32] = "";
    ::localtime_r(&seconds, &local);
    static_cast<void>(std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", &local));
    return fmt::format("{}-{}", storage::run_name(target, directory), date);
}

OwnOutput::OwnOutput(RunOptions& options, const std::string& directory) {
    if (!needs_own_output(options)) {
        made_ = make_named_output(options, directory);
        is_named_ = !made_.empty();
        if (is_named_) folder_ = made_.back();
        return;
    }
    const std::string models = options.working_directory.empty()
                                   ? directory
                                   : (fs::path(directory) / options.working_directory).string();
    if (options.resume == "auto" || options.resume == "best")
        refuse_resume(storage::run_name(options.target, models), directory);
    const std::string name =
        fmt::format("{}/{}", kRuns, own_output_name(options.target, models, std::time(nullptr)));
    options.output = name;
    std::error_code missing;
    if (options.dry_run || !fs::exists(fs::path(models) / options.target, missing)) return;
    const auto refuse = [&](int error_number) {
        fail(ExitCode::kDisk,
             "{}/{}: cannot make the folder for the results: {}; name another one with --output "
             "DIR, or keep no results with --no-output",
             printable(directory), name, errno_text(error_number));
    };
    const std::string runs = fmt::format("{}/{}", directory, kRuns);
    if (::mkdir(runs.c_str(), 0777) == 0) {
        made_.push_back(runs);
    } else if (errno != EEXIST) {
        refuse(errno);
    }
    for (int number = 2;; ++number) {
        const std::string path = fmt::format("{}/{}", directory, options.output);
        if (::mkdir(path.c_str(), 0777) == 0) {
            folder_ = path;
            made_.push_back(path);
            return;
        }
        if (errno != EEXIST) refuse(errno);
        options.output = fmt::format("{}-{}", name, number);  // another job began in this second
    }
}

OwnOutput::~OwnOutput() {
    if (folder_.empty() || (code_ && !is_told_whole(*code_))) return;
    if (is_named_ && code_ && *code_ == static_cast<int>(ExitCode::kInterrupted)) return;
    try {
        remove_files();
    } catch (const std::exception& error) {
        log_debug("launch", "{} stays: {}", printable(folder_), error.what());
    }
    remove_empty(made_);
}

// Another job may have begun in the folder while this one was still being checked. A job writes
// there only while it holds the locks on the metrics and on the checkpoints, so files that are
// removed under both locks belong to no running job. Throws Error{kCheckpoint} if another job is
// writing.
void OwnOutput::remove_files() const {
    std::error_code missing;
    // The job opens metrics.jsonl before any other file. Without it, there is nothing to remove.
    if (job_.empty() || !fs::exists(folder_ + "/metrics.jsonl", missing)) return;
    const launch::MetricsFile metrics(folder_);
    const std::string lock = folder_ + "/checkpoints/.lock";
    const auto tree = storage::make_disk_tree();
    std::unique_ptr<storage::FileLock> claim;
    const UniqueFd logs(::open((folder_ + "/logs").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (logs.valid() && ::flock(logs.get(), LOCK_EX | LOCK_NB) != 0) return;  // a program's job
    if (fs::exists(lock, missing) && (claim = tree->lock(lock, "a refused job")) == nullptr) return;
    if (has_results(folder_) || !has_only(job_, folder_)) return;
    std::error_code left;
    for (const char* made : {"logs", "checkpoints", "run.json", "metrics.jsonl", "tensorboard"})
        fs::remove_all(fmt::format("{}/{}", folder_, made), left);
}

}  // namespace dslaunch::launcher
