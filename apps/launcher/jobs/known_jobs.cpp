#include "launcher/jobs/known_jobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "launch/jobs/job_record.h"
#include "launch/metrics/metrics_file.h"
#include "launch/output/run_record.h"
#include "launch/process/spawn.h"
#include "storage/named/place.h"

namespace dslaunch::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kRecordBytesMax = 16U << 20;

// Throws Json::exception if a member is missing or has the wrong type.
KnownJob parse_job(const Json& json) {
    KnownJob job;
    job.id = json.at("job_id").get<std::string>();
    job.launch_id = json.at("launch_id").get<std::string>();
    job.state = json.at("state").get<std::string>();
    if (!json.at("exit_code").is_null()) job.exit_code = json.at("exit_code").get<int64_t>();
    if (!json.at("ended_at").is_null()) job.ended_at_s = json.at("ended_at").get<int64_t>();
    job.started_at_s = json.at("started_at").get<int64_t>();
    job.started_at_ns = json.at("started_at_ns").get<int64_t>();
    job.target = json.at("target").get<std::string>();
    job.working_directory = json.at("working_directory").get<std::string>();
    job.output = json.at("output").get<std::string>();
    job.transport = json.at("transport").get<std::string>();
    job.ssh_config = json.at("ssh_config").get<std::string>();
    job.world_size = json.at("world_size").get<int64_t>();
    job.restarts = json.at("restarts").get<int64_t>();
    job.max_restarts = json.at("max_restarts").get<int64_t>();
    job.grace = std::chrono::milliseconds(json.at("grace_ms").get<int64_t>());
    const Json& launcher = json.at("launcher");
    job.machine = launcher.at("machine").get<std::string>();
    job.launcher.pid = launcher.at("pid").get<pid_t>();
    job.launcher.start_time = launcher.at("start_time").get<uint64_t>();
    job.is_here = job.machine == launch::recorded_machine();
    job.lives = job.state != "ended" && job.is_here &&
                launcher.at("boot_id").get<std::string>() == launch::boot_id() &&
                job.launcher.start_time != 0 &&
                launch::name_process(job.launcher.pid) == job.launcher;
    for (const Json& host : json.at("hosts")) {
        job.hosts.push_back({host.at("name").get<std::string>(), host.at("user").get<std::string>(),
                             host.at("port").get<int>(), host.at("address").get<std::string>()});
        job.host_ranks.push_back(host.at("ranks").get<int64_t>());
    }
    if (job.state != "ended" && !job.is_here) job.state = "away";
    if (job.state != "ended" && job.is_here && !job.lives) job.state = "lost";
    return job;
}

void read_progress(KnownJob& job) {
    try {
        const Json line = Json::parse(read_file(job.folder + "/progress.json", kRecordBytesMax));
        if (line.at("step").is_number()) job.step = line.at("step").get<int64_t>();
        if (line.at("loss").is_number()) job.loss = line.at("loss").get<double>();
    } catch (const std::exception&) {
        // The file does not exist yet, or the job is not a training job.
    }
}

// Returns the end of a message that names the newest jobs: ". The newest are ID of TARGET in
// OUTPUT: STATE, …". Returns an empty text if there is no job.
std::string newest_text(const std::vector<KnownJob>& jobs) {
    constexpr size_t kNamedMax = 3;
    std::vector<std::string> names;
    for (const KnownJob& job : jobs) {
        if (names.size() == kNamedMax) break;
        const std::string target = std::filesystem::path(job.target).filename().string();
        const std::string place =
            job.output.empty() ? "" : " in " + printable(path_from_here(job.output));
        names.push_back(
            fmt::format("{} of {}{}: {}", job.id, printable(target), place, state_text(job)));
    }
    return names.empty() ? "" : ". The newest are " + join(names, ", ");
}

// Returns true if the words of process PID are `dslaunch serve` and the model at PATH.
bool serves(pid_t pid, const std::string& path) {
    const std::string place = fmt::format("/proc/{}/", pid);
    const std::vector<std::string> words = split(launch::text_or_empty(place + "cmdline"), '\0');
    if (words.size() < 3 || words[1] != "serve") return false;
    std::error_code missing;
    const std::filesystem::path folder = std::filesystem::read_symlink(place + "cwd", missing);
    return std::any_of(words.begin() + 2, words.end(), [&](const std::string& word) {
        return !word.empty() && std::filesystem::equivalent(folder / word, path, missing) &&
               !missing;
    });
}

// Returns a sentence about servers, which are not jobs, and the process that serves the model at
// PATH.
std::string server_text(const std::string& path) {
    std::string text = ". A server that `dslaunch serve` started is not a job: ";
    for (const pid_t pid : launch::all_processes())
        if (launch::process_owner(pid) == ::getuid() && serves(pid, path))
            return text + fmt::format(
                              "process {0} serves {1}; Ctrl-C in its terminal ends it, or "
                              "kill {0}",
                              pid, printable(path));
    return text + "Ctrl-C in its terminal ends it";
}

// Returns the folders in PLACES that contain results of JOB, as their run.json says.
std::vector<std::string> folders_of_run(const std::set<std::string>& places,
                                        const std::string& job) {
    std::vector<std::string> folders;
    for (const std::string& place : places) {
        std::error_code unreadable;
        std::filesystem::directory_iterator entry(place, unreadable), end;
        for (; entry != end; entry.increment(unreadable)) {
            const auto run = launch::find_run_record(entry->path().string());
            if (run && run->job_id == job &&
                storage::place_at(entry->path().string()).kind != storage::PlaceKind::kEmptyRun)
                folders.push_back(path_from_here(entry->path().string()));
        }
    }
    return folders;
}

}  // namespace

int64_t KnownJob::hosts_in_use() const {
    return std::count_if(host_ranks.begin(), host_ranks.end(), [](int64_t n) { return n > 0; });
}

std::string own_state_directory() {
    std::string path = launch::state_directory(launch::own_environment());
    if (path.empty())
        fail(ExitCode::kSetup,
             "XDG_STATE_HOME or HOME must be set to an absolute path: dslaunch records its jobs "
             "there");
    return path;
}

std::vector<KnownJob> read_jobs(const std::string& state_directory) {
    std::vector<KnownJob> jobs;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(state_directory + "/jobs", error)) {
        const std::string name = entry.path().filename().string();
        if (!launch::is_job_id(name)) continue;
        try {
            KnownJob job =
                parse_job(Json::parse(read_file(entry.path() / "job.json", kRecordBytesMax)));
            if (job.id != name) continue;
            job.folder = entry.path();
            read_progress(job);
            jobs.push_back(std::move(job));
        } catch (const std::exception&) {
            continue;
        }
    }
    std::stable_sort(jobs.begin(), jobs.end(), [](const KnownJob& a, const KnownJob& b) {
        return a.started_at_ns > b.started_at_ns;
    });
    return jobs;
}

KnownJob find_job(const std::string& state_directory, const std::string& text) {
    const std::vector<KnownJob> jobs = read_jobs(state_directory);
    std::error_code unreadable;
    if (jobs.empty() && !std::filesystem::exists(text, unreadable))
        fail(ExitCode::kUsage,
             "no job of this user has run on this machine (jobs are recorded in {})",
             printable(state_directory + "/jobs"));
    if (text.empty())
        fail(ExitCode::kUsage,
             "which job? Give its id or its --output folder{}; `dslaunch ps --all` lists all jobs",
             newest_text(jobs));
    const auto named = std::ranges::find(jobs, text, &KnownJob::id);
    if (named != jobs.end()) return *named;
    if (const KnownJob* job = job_of_output(jobs, text)) return *job;
    std::vector<KnownJob> found;
    for (const KnownJob& job : jobs)
        if (launch::is_job_id(text) && job.id.starts_with(text)) found.push_back(job);
    if (found.size() == 1) return found.front();
    if (found.empty() && std::filesystem::exists(text, unreadable))
        fail(ExitCode::kUsage,
             "`{}` is not a job's id, and it is not the --output folder of a recorded job{}; "
             "`dslaunch ps --all` lists the jobs{}",
             printable(text),
             std::filesystem::is_directory(text + "/logs", unreadable)
                 ? fmt::format(" (the output of its ranks is in {}/logs)", printable(text))
                 : "",
             server_text(text));
    if (!launch::is_job_id(text))
        fail(ExitCode::kUsage,
             "`{}` is not a job's id; `dslaunch ps --all` lists the jobs and their ids",
             printable(text));
    if (found.empty())
        fail(ExitCode::kUsage,
             "no job with the id `{}` was found{}; `dslaunch ps --all` lists all jobs", text,
             newest_text(jobs));
    std::vector<std::string> ids;
    for (const KnownJob& job : found) ids.push_back(job.id);
    fail(ExitCode::kUsage, "`{}` is the beginning of the ids of {} jobs: {}; give more letters",
         text, ids.size(), join(ids, ", "));
}

void refuse_moved_output(const std::string& path) {
    std::error_code missing;
    const std::string state = launch::state_directory(launch::own_environment());
    if (path.empty() || state.empty() || std::filesystem::exists(path, missing)) return;
    const std::vector<KnownJob> jobs = read_jobs(state);
    const KnownJob* const job = job_of_output(jobs, path);
    // A file in a folder that still exists was mistyped.
    if (job == nullptr || std::filesystem::exists(job->output, missing)) return;
    const std::vector<std::string> now =
        folders_of_run({std::filesystem::weakly_canonical(folder_of(job->output), missing).string(),
                        std::filesystem::weakly_canonical(".", missing).string()},
                       job->id);
    const std::string end = now.empty() ? "moved or removed: give its new path"
                            : now.size() == 1
                                ? "renamed: give " + printable(now.front())
                                : "renamed or copied: give one of " + printable(join(now, ", "));
    fail(ExitCode::kInput, "{}: this --output folder of job {} ({}) has been {}", printable(path),
         job->id, state_text(*job), end);
}

void remove_old_jobs(const std::string& state_directory) {
    if (state_directory.empty()) return;
    size_t over = 0;
    for (const KnownJob& job : read_jobs(state_directory)) {
        if (job.lives || job.state == "away") continue;
        if (++over <= kKeptJobs) continue;
        std::error_code error;  // another launcher may remove the same folder
        std::filesystem::remove_all(job.folder, error);
    }
}

const KnownJob* job_of_output(const std::vector<KnownJob>& jobs, const std::string& path) {
    std::error_code missing;
    if (path.empty()) return nullptr;
    // weakly_canonical() leaves a path relative if even its first part does not exist.
    std::filesystem::path folder =
        std::filesystem::weakly_canonical(std::filesystem::absolute(path, missing), missing);
    if (!folder.has_filename()) folder = folder.parent_path();
    if (std::filesystem::exists(folder, missing) && !std::filesystem::is_directory(folder, missing))
        folder = folder.parent_path();
    const KnownJob* found = nullptr;
    for (const KnownJob& job : jobs) {
        if (job.output.empty() || std::filesystem::weakly_canonical(job.output, missing) != folder)
            continue;
        if (job.lives) return &job;
        if (found == nullptr) found = &job;
    }
    return found;
}

void refuse_running_output(const launch::JobSpec& spec) {
    const std::string& output = spec.output_directory;
    if (output.empty() || !launch::MetricsFile::is_held(output)) return;
    const std::vector<KnownJob> jobs =
        spec.state_directory.empty() ? std::vector<KnownJob>{} : read_jobs(spec.state_directory);
    const KnownJob* const job = job_of_output(jobs, output);
    if (job == nullptr || !job->lives)
        fail(ExitCode::kCheckpoint,
             "{}: another job is writing there (another user's, or one started on another "
             "machine): wait until it ends, or give another --output",
             printable(path_from_here(output)));
    fail(ExitCode::kCheckpoint,
         "{0}: job {1} is running and writes there{2}: `dslaunch top {1}` shows it, `dslaunch stop "
         "{1}` ends it; wait until it ends, or give another --output",
         printable(path_from_here(output)), job->id,
         job->step ? fmt::format(", now at step {}", *job->step) : "");
}

std::string state_text(const KnownJob& job) {
    if (job.state == "away") return "on " + printable(job.machine);
    if (job.state == "lost") return "lost (launcher killed)";
    if (job.state != "ended") {
        const std::string state = printable(job.state);
        return job.restarts > 0 ? fmt::format("{} ({})", state, job.restarts) : state;
    }
    const int64_t code = job.exit_code.value_or(-1);
    if (code == 0) return "ok";
    if (code == static_cast<int64_t>(ExitCode::kInterrupted)) return "interrupted";
    if (code > 0 && is_own_code(static_cast<uint32_t>(code)))
        return fmt::format("failed ({} {})", code, exit_code_name(static_cast<ExitCode>(code)));
    return fmt::format("failed ({})", code);
}

std::string age_text(int64_t seconds) {
    seconds = std::max<int64_t>(0, seconds);
    if (seconds < 120) return fmt::format("{} s", seconds);
    if (seconds < 7200) return fmt::format("{} min", seconds / 60);
    if (seconds < 172'800) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
    return fmt::format("{} d {} h", seconds / 86'400, seconds / 3600 % 24);
}

}  // namespace dslaunch::launcher
