#include "launch/jobs/job_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/new_files.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/machine/machine_name.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::seconds kProgressInterval{1};

UniqueFd open_own(const std::string& path) {
    return UniqueFd(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
}

// Returns the transport over which `stop` reaches the hosts again: local, openssh or ssh. Other
// transports depend on an allocation or a listener that has ended with the launcher, so ssh takes
// their place.
const char* way_back(TransportKind kind) {
    if (kind == TransportKind::kLocal) return "local";
    return kind == TransportKind::kOpenSsh ? "openssh" : "ssh";
}

}  // namespace

std::string state_directory(const EnvironmentList& environment) {
    const std::string* state = find_variable(environment, "XDG_STATE_HOME");
    if (state != nullptr && state->starts_with('/')) return *state + "/dslaunch";
    const std::string* home = find_variable(environment, "HOME");
    if (home != nullptr && home->starts_with('/')) return *home + "/.local/state/dslaunch";
    return "";
}

bool is_job_id(std::string_view text) {
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    };
    return !text.empty() && text.size() <= 128 && text.front() != '.' &&
           std::all_of(text.begin(), text.end(), is_plain);
}

std::string recorded_machine() {
    return machine_name("");
}

std::string boot_id() {
    return std::string(trim(text_or_empty("/proc/sys/kernel/random/boot_id")));
}

// The job's folder and log. Only the writer's thread uses it, but any thread may read the results
// of open() once open() has finished.
struct JobRecord::Folder {
    std::string path;
    UniqueFd lock;  // held as long as the job runs
    UniqueFd log;
    int64_t log_bytes = 0;
    bool is_open = false;
    bool is_taken = false;  // another job of this name is running

    int open() {
        if (const int error = make_folders(path, 0700); error != 0) return -error;
        lock = open_own(path + "/lock");
        // The lock is released when this process ends; no worker inherits the descriptor.
        if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
            is_taken = errno == EWOULDBLOCK;
            return is_taken ? 0 : -errno;
        }
        // These files were left by an earlier job of this name.
        for (const char* old : {"/job.log", "/job.log.1", "/progress.json", "/ranks.json"}) {
            ::unlink((path + old).c_str());
        }
        is_open = true;
        log = open_own(path + "/job.log");
        return log.valid() ? 0 : -errno;
    }

    int replace(const std::string& file, std::string_view content) const {
        return is_open ? replace_file(path + "/" + file, content, 0600) : 0;
    }

    // After the first failure nothing more is written to the log.
    int append(std::string_view text) {
        if (!log.valid()) return 0;
        const auto bytes = static_cast<int64_t>(text.size());
        if (log_bytes > 0 && log_bytes + bytes > kJobLogBytesMax) {
            const std::string name = path + "/job.log";
            static_cast<void>(::rename(name.c_str(), (name + ".1").c_str()));
            log = open_own(name);
            log_bytes = 0;
            if (!log.valid()) return -errno;
        }
        const int status = write_full(log.get(), text);
        if (status != 0) log.reset();
        log_bytes += bytes;
        return status;
    }
};

JobRecord::JobRecord(const JobSpec& spec, std::function<void(std::string_view)> warn)
    : spec_(spec), warn_(std::move(warn)), started_at_ns_(wall_clock().count()) {
    if (spec.state_directory.empty()) {
        warn_(
            "dslaunch: warning: neither XDG_STATE_HOME nor HOME is an absolute path: this job is "
            "not recorded, and `dslaunch ps`, `logs` and `stop` will not find it");
    } else if (!is_job_id(spec.job_id)) {
        warn_(
            fmt::format("dslaunch: warning: the job name `{}` cannot be used as a folder name, so "
                        "`dslaunch ps` will not list this job",
                        printable(spec.job_id)));
    } else {
        open_folder();
    }
}

JobRecord::~JobRecord() {
    if (folder_ != nullptr) static_cast<void>(writer_->wait(kBrief));
}

void JobRecord::open_folder() {
    folder_ = std::make_shared<Folder>();
    folder_->path = spec_.state_directory + "/jobs/" + spec_.job_id;
    writer_ = std::make_unique<FileWriter>(folder_->path);
    static_cast<void>(writer_->post([folder = folder_] { return folder->open(); }, 0));
    if (writer_->wait(kBrief) && folder_->is_taken) {
        warn_(
            fmt::format("dslaunch: warning: another job named `{}` is running; `dslaunch ps` "
                        "will not list this one",
                        spec_.job_id));
        folder_.reset();
        return;
    }
    write_job();
}

void JobRecord::tell_news() {
    if (folder_ == nullptr) return;
    if (const int error = writer_->take_failure(); error != 0) {
        warn_(
            fmt::format("dslaunch: warning: cannot write {}: {}; the job continues, but `dslaunch "
                        "ps`, `logs` and `stop` will not know everything about this job",
                        folder_->path, errno_text(error)));
    }
    if (const std::string news = writer_->take_news(); !news.empty()) warn_(news);
}

void JobRecord::settle() {
    if (folder_ == nullptr) return;
    static_cast<void>(writer_->wait(kBrief));
    tell_news();
}

void JobRecord::replace(const std::string& file, std::string content) {
    if (folder_ == nullptr) return;
    const size_t bytes = content.size();
    static_cast<void>(writer_->post(
        [folder = folder_, file, kept = std::move(content)] { return folder->replace(file, kept); },
        bytes));
}

void JobRecord::write_job() {
    const ProcessName self = name_process(::getpid());
    JsonWriter json;
    json.begin_object().field("dslaunch", DSL_VERSION).field("job_id", spec_.job_id);
    json.field("launch_id", spec_.launch_id);
    json.field("state", state_).key("exit_code");
    exit_code_ < 0 ? json.null() : json.value(exit_code_);
    json.field("target", spec_.target).field("started_at", started_at_ns_ / 1'000'000'000);
    json.field("started_at_ns", started_at_ns_).key("ended_at");
    ended_at_s_ == 0 ? json.null() : json.value(ended_at_s_);
    json.field("world_size", world_size_).field("restarts", restarts_);
    json.field("max_restarts", spec_.max_restarts);
    json.field("working_directory", spec_.working_directory);
    json.field("output", spec_.output_directory).field("grace_ms", spec_.grace.count());
    json.key("launcher")
        .begin_object()
        .field("machine", recorded_machine())
        .field("boot_id", boot_id());
    json.field("pid", self.pid).field("start_time", self.start_time).end_object();
    json.field("transport", way_back(spec_.transport)).field("ssh_config", spec_.ssh_config_path);
    json.key("hosts").begin_array();
    for (const UsedHost& host : hosts_) {
        json.begin_object().field("name", host.name).field("user", host.user);
        json.field("port", host.port).field("address", host.address).field("ranks", host.ranks);
        json.end_object();
    }
    json.end_array().end_object();
    replace("job.json", json.text() + "\n");
    settle();  // then `dslaunch ps` agrees with what was just printed
}

void JobRecord::begin_attempt(const JobSpec& spec, int restarts) {
    if (folder_ == nullptr) return;
    for (UsedHost& host : hosts_) host.ranks = 0;
    for (const PlannedNode& node : spec.nodes) {
        auto found = std::find_if(hosts_.begin(), hosts_.end(),
                                  [&](const UsedHost& host) { return host.name == node.name; });
        if (found == hosts_.end()) {
            hosts_.push_back({node.name, node.user, node.address, node.port, 0});
            found = hosts_.end() - 1;
        }
        found->ranks += static_cast<int64_t>(node.workers.size());
    }
    state_ = "running";
    world_size_ = spec.world_size;
    restarts_ = restarts;
    write_job();
}

void JobRecord::wait_for_restart(int restarts) {
    if (folder_ == nullptr) return;
    state_ = "restarting";
    restarts_ = restarts;
    write_job();
}

void JobRecord::end(int exit_code) {
    if (folder_ == nullptr) return;
    if (!are_metrics_written_) write_progress();
    state_ = "ended";
    exit_code_ = exit_code;
    ended_at_s_ = std::time(nullptr);
    write_job();
}

void JobRecord::write_progress() {
    are_metrics_written_ = true;
    replace("progress.json", metrics_line_ + "\n");
}

void JobRecord::metrics(std::string_view line) {
    // Lines of an evaluation contain no training loss.
    if (folder_ == nullptr || line.find("\"loss\"") == std::string_view::npos) return;
    metrics_line_ = line;
    are_metrics_written_ = false;
    const auto now = std::chrono::steady_clock::now();
    if (metrics_at_.time_since_epoch().count() != 0 && now - metrics_at_ < kProgressInterval)
        return;
    metrics_at_ = now;
    write_progress();
}

bool JobRecord::wants_ranks() const {
    return folder_ != nullptr && std::chrono::steady_clock::now() - ranks_at_ >= kProgressInterval;
}

void JobRecord::ranks(std::string json) {
    if (folder_ == nullptr) return;
    ranks_at_ = std::chrono::steady_clock::now();
    replace("ranks.json", std::move(json));
}

void JobRecord::append(std::string text) {
    const size_t bytes = text.size();
    static_cast<void>(writer_->post(
        [folder = folder_, kept = std::move(text)] { return folder->append(kept); }, bytes));
}

void JobRecord::lines(int rank, std::string_view host, std::string_view lines) {
    if (folder_ == nullptr) return;
    std::string text;
    while (!lines.empty()) {
        const size_t newline = std::min(lines.find('\n'), lines.size());
        text += fmt::format("{}\t{}\t", rank, host);
        text.append(lines.substr(0, newline)).push_back('\n');
        lines.remove_prefix(std::min(newline + 1, lines.size()));
    }
    append(std::move(text));
}

void JobRecord::note(std::string_view text) {
    if (folder_ == nullptr) return;
    std::string lines;
    for (const std::string& line : split(text, '\n')) lines += "-\t\t" + line + "\n";
    append(std::move(lines));
}

}  // namespace dslaunch::launch
