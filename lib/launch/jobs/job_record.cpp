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
#include "base/text.h"
#include "base/text/json.h"
#include "launch/machine/machine_name.h"
#include "launch/process/process_tree.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::seconds kProgressInterval{1};

// Every folder of PATH that is missing, for this user alone. 0 or an errno.
int make_folders(const std::string& path) {
    for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
        const std::string part = path.substr(0, slash);
        if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return errno;
        if (slash == std::string::npos) return 0;
    }
}

UniqueFd open_own(const std::string& path) {
    return UniqueFd(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
}

// `stop` reaches the hosts again by one of these three; what else started the agents needs an
// allocation or a listener that has ended with the launcher.
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
    try {
        return std::string(trim(read_file("/proc/sys/kernel/random/boot_id", 256)));
    } catch (const Error&) {
        return "";
    }
}

JobRecord::JobRecord(const JobSpec& spec, std::function<void(std::string_view)> warn)
    : spec_(spec),
      warn_(std::move(warn)),
      started_at_ns_(std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count()) {
    if (spec.state_directory.empty()) {
        warn_(
            "dslaunch: warning: neither XDG_STATE_HOME nor HOME is an absolute path: this job is "
            "not recorded, and `dslaunch ps`, `logs` and `stop` will not know it");
        return;
    }
    if (!open_folder()) return;
    write_job();
}

bool JobRecord::open_folder() {
    if (!is_job_id(spec_.job_id)) {
        warn_(
            fmt::format("dslaunch: warning: the job's name `{}` is no folder name; `dslaunch ps` "
                        "will not list it",
                        printable(spec_.job_id)));
        return false;
    }
    folder_ = spec_.state_directory + "/jobs/" + spec_.job_id;
    if (const int error = make_folders(folder_); error != 0) {
        give_up(error);
        folder_.clear();
        return false;
    }
    lock_ = open_own(folder_ + "/lock");
    // The lock ends with this process; no worker inherits the descriptor.
    if (lock_.valid() && ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
        warn_(
            fmt::format("dslaunch: warning: another job named `{}` is running; `dslaunch ps` "
                        "will not list this one",
                        spec_.job_id));
        folder_.clear();
        return false;
    }
    // An earlier job of this name left them.
    for (const char* old : {"/job.log", "/job.log.1", "/progress.json"}) {
        ::unlink((folder_ + old).c_str());
    }
    log_ = open_own(folder_ + "/job.log");
    if (!log_.valid()) give_up(errno);
    return true;
}

void JobRecord::give_up(int error_number) {
    log_.reset();
    if (std::exchange(told_, true)) return;
    warn_(
        fmt::format("dslaunch: warning: {} cannot be written: {}; the job goes on, but `dslaunch "
                    "ps`, `logs` and `stop` will not know all of it",
                    folder_, errno_text(error_number)));
}

void JobRecord::replace(const std::string& file, std::string_view content) {
    if (folder_.empty()) return;
    const std::string path = folder_ + "/" + file;
    const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
    const UniqueFd fd(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    int error = fd.valid() ? -write_full(fd.get(), content) : errno;
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
    if (error == 0) return;
    ::unlink(temporary.c_str());
    give_up(error);
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
}

void JobRecord::begin_attempt(const JobSpec& spec, int restarts) {
    if (folder_.empty()) return;
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
    if (folder_.empty()) return;
    state_ = "restarting";
    restarts_ = restarts;
    write_job();
}

void JobRecord::end(int exit_code) {
    if (folder_.empty()) return;
    if (!metrics_written_) write_progress();
    state_ = "ended";
    exit_code_ = exit_code;
    ended_at_s_ = std::time(nullptr);
    write_job();
}

void JobRecord::write_progress() {
    metrics_written_ = true;
    replace("progress.json", metrics_line_ + "\n");
}

void JobRecord::metrics(std::string_view line) {
    // Lines of an evaluation have no loss of training.
    if (folder_.empty() || line.find("\"loss\"") == std::string_view::npos) return;
    metrics_line_ = line;
    metrics_written_ = false;
    const auto now = std::chrono::steady_clock::now();
    if (metrics_at_.time_since_epoch().count() != 0 && now - metrics_at_ < kProgressInterval)
        return;
    metrics_at_ = now;
    write_progress();
}

void JobRecord::append(std::string_view text) {
    if (!log_.valid()) return;
    const auto bytes = static_cast<int64_t>(text.size());
    if (log_bytes_ > 0 && log_bytes_ + bytes > kJobLogBytesMax) {
        const std::string path = folder_ + "/job.log";
        static_cast<void>(::rename(path.c_str(), (path + ".1").c_str()));
        log_ = open_own(path);
        log_bytes_ = 0;
        if (!log_.valid()) return give_up(errno);
    }
    if (const int status = write_full(log_.get(), text); status != 0) return give_up(-status);
    log_bytes_ += bytes;
}

void JobRecord::lines(int rank, std::string_view host, std::string_view lines) {
    if (folder_.empty() || !spec_.output_directory.empty()) return;
    std::string text;
    while (!lines.empty()) {
        const size_t newline = std::min(lines.find('\n'), lines.size());
        text += fmt::format("{}\t{}\t", rank, host);
        text.append(lines.substr(0, newline)).push_back('\n');
        lines.remove_prefix(std::min(newline + 1, lines.size()));
    }
    append(text);
}

void JobRecord::note(std::string_view text) {
    if (folder_.empty()) return;
    std::string lines;
    for (const std::string& line : split(text, '\n')) lines += "-\t\t" + line + "\n";
    append(lines);
}

}  // namespace dslaunch::launch
