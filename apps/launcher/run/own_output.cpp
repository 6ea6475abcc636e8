#include "launcher/run/own_output.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "storage/huggingface/named_place.h"

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

// Makes the --output folder of a training job and returns its absolute path. Returns an empty text
// if the folder exists, or cannot be made here; then the job itself makes it or says why not.
std::string make_named_output(const RunOptions& options, const std::string& directory) {
    std::error_code missing;
    if (options.output.empty() || options.dry_run || !options.role.empty() || options.verifies ||
        target_kind_of(options) != launch::TargetKind::kModel ||
        !fs::exists(fs::path(directory) / options.working_directory / options.target, missing))
        return "";
    std::string folder = (fs::path(directory) / options.output).lexically_normal().string();
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    return ::mkdir(folder.c_str(), 0777) == 0 ? folder : "";
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
        folder_ = make_named_output(options, directory);
        is_named_ = !folder_.empty();
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
    made_runs_ = ::mkdir(runs.c_str(), 0777) == 0;
    if (!made_runs_ && errno != EEXIST) refuse(errno);
    for (int number = 2;; ++number) {
        const std::string path = fmt::format("{}/{}", directory, options.output);
        if (::mkdir(path.c_str(), 0777) == 0) {
            folder_ = path;
            return;
        }
        if (errno != EEXIST) refuse(errno);
        options.output = fmt::format("{}-{}", name, number);  // another job began in this second
    }
}

OwnOutput::~OwnOutput() {
    if (folder_.empty() || (code_ && !is_told_whole(*code_))) return;
    if (is_named_ && code_ && *code_ == static_cast<int>(ExitCode::kInterrupted)) return;
    std::error_code left;
    if (has_results(folder_)) return;
    for (const char* made : {"logs", "checkpoints", "run.json", "metrics.jsonl", "tensorboard"})
        fs::remove_all(fmt::format("{}/{}", folder_, made), left);
    if (::rmdir(folder_.c_str()) == 0 && made_runs_)
        static_cast<void>(::rmdir(fs::path(folder_).parent_path().c_str()));
}

}  // namespace dslaunch::launcher
