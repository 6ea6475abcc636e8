// `dslaunch health [options]`: starts `dsworker health` on every slot in the same way as a job,
// collects the ranks' measurements, and prints which ranks, links or hosts are at fault. See
// docs/guide/health.md.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/byte_size.h"
#include "health/health_report.h"
#include "launch/machine/held_name.h"
#include "launch/process/standard_streams.h"
#include "launch/supervise/job.h"
#include "launcher/hosts/host_command.h"
#include "launcher/options/option_table.h"
#include "launcher/options/parse_run.h"
#include "launcher/options/run_options.h"
#include "launcher/run/build_job.h"
#include "launcher/run/commands.h"
#include "launcher/run/dry_run.h"
#include "launcher/run/host_source.h"
#include "launcher/run/mpi_copies.h"

namespace dslaunch::launcher {
namespace {

constexpr int64_t kSizeMax = int64_t{1} << 34;
// Ranks end by themselves after the time limit; the launcher waits this much longer.
constexpr int kLauncherSlackSeconds = 20;

HelpPage health_page() {
    return {.does =
                "Measures links and collectives between hosts, and names slow or broken ones. One "
                "rank on every slot first measures all links between the hosts in both directions "
                "(rate, round-trip times, lost packets). Then it measures broadcast, send and "
                "receive, barrier, all_reduce, all_gather, reduce_scatter and all_to_all, and "
                "checks each received element. Names the hosts, links and ranks that are slow, "
                "lose packets, change data or do not answer.",
            .examples = {"dslaunch health --hostfile hostfile",
                         "dslaunch health --hostfile hostfile --sizes 1M,64M --min-busbw 10"},
            .exit_codes =
                "0 healthy; 71 a problem was found; 67 a host cannot be reached; 68 a rank was "
                "killed; 69 a rank does not answer.",
            .docs = "docs/guide/health.md",
            .usage = {"dslaunch health [options]"}};
}

struct HealthOptions {
    std::string backend;  // gloo, nccl; empty: chosen by the device
    bool json = false;
    double min_bus_bandwidth = 0;  // GB/s
    double timeout_s = 120;
    std::vector<int64_t> sizes_bytes;  // empty: dsworker's default
};

double positive(const std::string& text, double max) {
    const auto value = parse_double(text);
    if (!value || !std::isfinite(*value) || *value <= 0 || *value > max)
        fail(ExitCode::kUsage, "`{}` is not a number greater than 0 and at most {}",
             printable(text), max);
    return *value;
}

int64_t parse_size(const std::string& text) {
    const auto bytes = parse_byte_size(text);
    if (!bytes || *bytes < 4 || *bytes > kSizeMax)
        fail(ExitCode::kUsage, "`{}` is not a size from 4 to 16G, such as 4K or 1M",
             printable(text));
    return *bytes;
}

HostCommand health_syntax(HealthOptions& health) {
    HostCommand command{health_page(), {}, RunRows::kJob};
    command.options = {
        {"backend", "NAME", "gloo (CPUs) or nccl (GPUs); default: nccl if there are GPUs",
         [&](const std::string& value) {
             if (value != "gloo" && value != "nccl")
                 fail(ExitCode::kUsage, "`{}` is neither gloo nor nccl", printable(value));
             health.backend = value;
         }},
        {"sizes", "LIST", "sizes of each operation in bytes, such as 4K,1M,64M; default 4K,64K,4M",
         [&](const std::string& value) {
             for (const std::string& size : split(value, ','))
                 health.sizes_bytes.push_back(parse_size(size));
         }},
        {"min-busbw", "X", "bus bandwidth in GB/s that every operation must reach",
         [&](const std::string& value) { health.min_bus_bandwidth = positive(value, 1e6); }},
        {"timeout", "SECONDS", "time limit for the whole check, default 120",
         [&](const std::string& value) { health.timeout_s = positive(value, 86'400); }},
        {"json", "", "print the report as JSON", [&](const std::string&) { health.json = true; }},
    };
    constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
        {"push", "run `dslaunch push` first"},
        {"no-ssh", "a single command checks all hosts"},
        {"max-restarts", "a check runs only once"},
        {"elastic-training", "a check always uses every host"},
        {"min-elastic-nodes", "a check always uses every host"},
        {"max-elastic-nodes", "a check always uses every host"},
    };
    for (const auto& [name, reason] : kRefused) {
        command.options.push_back({name, "", reason, {}});
        command.options.back().group = group_title(Group::kRefused);
    }
    return command;
}

// Returns the options that choose the hosts. The target `health` in them is only a placeholder:
// make_health_job() replaces it by the worker.
RunOptions where_to_run(const HealthOptions& health, const ParsedCommand& parsed) {
    if (!parsed.words.empty()) {
        fail(ExitCode::kUsage,
             "dslaunch health does not accept `{}`; name the hosts with --hostfile",
             printable(parsed.words.front()));
    }
    RunOptions options = parsed.hosts;
    options.target = "health";
    options.no_python = true;
    if (!health.backend.empty()) {
        const launch::DeviceRequest device =
            health.backend == "nccl" ? launch::DeviceRequest::kCuda : launch::DeviceRequest::kCpu;
        if (options.device_given && options.device != device)
            fail(ExitCode::kUsage, "--backend {} contradicts --device; give only one of them",
                 health.backend);
        options.device = device;
        options.device_given = true;
    }
    settle_run_options(options);
    options.json = health.json && options.dry_run;
    return options;
}

// Refuses option values that make no sense for a single check of given hosts.
void refuse_for_health(const RunOptions& options, const Machine& machine) {
    const auto refuse = [](bool given, const char* what) {
        if (given) fail(ExitCode::kUsage, "dslaunch health does not support {}", what);
    };
    refuse(options.launcher == "join", "--launcher join");
    refuse(options.nodes.has_value(), "an elastic number of nodes");
    if (MpiCopies::is_one(options, machine)) {
        fail(ExitCode::kUsage,
             "start dslaunch health once, not under mpirun; to reach the hosts by mpirun, give "
             "`--launcher openmpi --hostfile FILE`");
    }
}

// Turns SPEC into the job of the health check. IS_PLACED: the user has named a working directory.
void make_health_job(const HealthOptions& health, const std::string& binary_directory,
                     bool is_placed, launch::JobSpec& spec) {
    const std::string worker = binary_directory + "/dsworker";
    require_worker(worker);
    // Treats the worker as a model's worker: it then gets sockets, and dslaunch returns the
    // worker's exit code.
    spec.target_kind = launch::TargetKind::kModel;
    spec.required_files = {worker};
    spec.grace = {};  // nothing has to be saved
    spec.bring_bytes_max = 0;
    if (!is_placed) spec.working_directory = "/";  // every host has it; no file of the user is read
    std::vector<std::string> command = {worker, "health",
                                        fmt::format("--timeout={}", health.timeout_s)};
    if (!health.backend.empty()) command.push_back("--backend=" + health.backend);
    std::string sizes;
    for (const int64_t size : health.sizes_bytes)
        sizes += fmt::format("{}{}", sizes.empty() ? "" : ",", size);
    if (!sizes.empty()) command.push_back("--sizes=" + sizes);
    for (launch::PlannedNode& node : spec.nodes)
        for (launch::PlannedWorker& planned : node.workers) planned.command = command;
}

health::HealthReport report_for(const HealthOptions& health, const launch::JobSpec& spec) {
    health::HealthReportOptions options;
    options.min_bus_bandwidth = health.min_bus_bandwidth;
    for (const launch::PlannedNode& node : spec.nodes) {
        options.host_names.push_back(node.name);
        for (const launch::PlannedWorker& planned : node.workers)
            options.ranks.push_back({node.name, planned.environment.local_rank});
    }
    return health::HealthReport(std::move(options));
}

// A timer that sends SIGTERM to this process if every rank is stuck. The signal ends the job as a
// second Ctrl-C does. The job receives it through its signalfd, because hold_end_signals() was
// called before.
class LastResort {
  public:
    explicit LastResort(double seconds) {
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGTERM;
        armed_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
        if (!armed_) fail(ExitCode::kSetup, "no timer: {}", errno_text(errno));
        itimerspec when{};
        when.it_value.tv_sec = static_cast<time_t>(std::ceil(seconds)) + kLauncherSlackSeconds;
        when.it_interval.tv_sec = 1;
        end_ = ::time(nullptr) + when.it_value.tv_sec;
        (void)::timer_settime(timer_, 0, &when, nullptr);
    }
    LastResort(const LastResort&) = delete;
    LastResort& operator=(const LastResort&) = delete;
    ~LastResort() { ::timer_delete(timer_); }
    [[nodiscard]] bool has_come() const { return ::time(nullptr) >= end_; }

  private:
    timer_t timer_{};
    bool armed_ = false;
    time_t end_ = 0;
};

}  // namespace

int run_health(std::span<const std::string> arguments) {
    launch::hold_end_signals();
    HealthOptions health;
    const ParsedCommand parsed = parse_host_command(arguments, health_syntax(health));
    if (parsed.help) return 0;
    if (parsed.hosts.version) {
        fmt::print("dslaunch {}\n", DSL_VERSION);
        return 0;
    }
    const RunOptions options = where_to_run(health, parsed);
    set_log_level(options.log.quiet ? LogLevel::kWarn : parse_log_level(options.log.level));
    const Machine machine = Machine::this_one();
    refuse_for_health(options, machine);
    const auto slurm_copy = SlurmCopy::find(options, machine);
    if (slurm_copy && !slurm_copy->launches()) return slurm_copy->wait(options);
    BuiltJob job = build_job(options, machine);
    if (slurm_copy) job.spec.held_name = slurm_copy->held_name();
    make_health_job(health, machine.binary_directory, !options.working_directory.empty(), job.spec);
    if (!health.json) print_notes(job, options);
    if (options.dry_run) {
        fmt::print("{}", options.json ? dry_run_json(job.spec) : dry_run_text(job.spec));
        return 0;
    }
    health::HealthReport report = report_for(health, job.spec);
    const LastResort last_resort(health.timeout_s);
    const launch::HeldName held =
        slurm_copy ? launch::HeldName(job.spec.held_name) : launch::HeldName();
    int code = launch::run_job(
        job.spec, [&](int rank, std::string_view record) { report.add(rank, record); });
    if (code == static_cast<int>(ExitCode::kInterrupted) && last_resort.has_come()) {
        launch::write_last_words(
            fmt::format("dslaunch: error: the ranks did not end within the time limit of {} s; "
                        "dslaunch ended them {} s later\n",
                        health.timeout_s, kLauncherSlackSeconds));
        code = static_cast<int>(ExitCode::kHang);
    }
    report.conclude(code);
    launch::release_end_signals();  // from here on Ctrl-C ends this program at once
    fmt::print("{}", health.json ? report.json() : report.text());
    return report.exit_code();
}

}  // namespace dslaunch::launcher
