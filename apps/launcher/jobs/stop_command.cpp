// `dslaunch stop JOB`: ends a job through its launcher or, if the launcher is dead, directly on its
// hosts. With --pid HOST:PID: ends one of the user's processes on a host, after asking.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/json.h"
#include "launch/agent/device_report.h"
#include "launch/agent/end_process.h"
#include "launch/agent/leftover_processes.h"
#include "launch/fleet/host_question.h"
#include "launch/process/timing.h"
#include "launch/protocol/frame.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/tree_transport.h"
#include "launcher/hosts/host_command.h"
#include "launcher/jobs/device_list.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The longest time that a launcher takes to end after a request to end at once. It includes the
// launcher's own time limits and the time in which it ends its hosts.
constexpr milliseconds kEndMax = launch::kUnkillableMax + 2 * launch::kFarewellMax;
constexpr milliseconds kHostsMax{30'000};  // for answers from the hosts of a dead launcher

struct StopArguments {
    std::string job;
    bool now = false;
    bool json = false;
};

struct LeftOnHost {
    std::string host;
    std::string error;
    std::vector<launch::LeftProcess> processes;
};

bool is_gone(const launch::ProcessName& process) {
    return launch::name_process(process.pid) != process;
}

bool gone_within(const launch::ProcessName& process, milliseconds time) {
    const auto limit = steady_clock::now() + time;
    while (!is_gone(process)) {
        if (steady_clock::now() > limit) return false;
        std::this_thread::sleep_for(milliseconds(20));
    }
    return true;
}

// Ends the launcher of JOB. Returns a text that says how it ended.
std::string end_launcher(const KnownJob& job, bool now) {
    launch::signal_process(job.launcher, SIGTERM);
    // Sends SIGUSR1 as the second signal: a second SIGTERM could be lost if it arrived before the
    // first was handled, and a shell's background jobs ignore SIGINT.
    if (now) launch::signal_process(job.launcher, SIGUSR1);
    if (!now && gone_within(job.launcher, job.grace + launch::kFarewellMax))
        return "ended as asked";
    if (!now) launch::signal_process(job.launcher, SIGTERM);
    if (gone_within(job.launcher, kEndMax)) return "ended at once";
    // The agents end their workers when they see that the launcher is gone.
    launch::signal_process(job.launcher, SIGKILL);
    if (!gone_within(job.launcher, launch::kFarewellMax))
        fail(ExitCode::kSetup,
             "the launcher of job {} (process {}) does not react even to SIGKILL: it is probably "
             "waiting for a disk or a driver",
             job.id, job.launcher.pid);
    return "killed, since it did not react";
}

std::vector<LeftOnHost> end_leftovers(const KnownJob& job) {
    std::vector<launch::HostAddress> hosts = job.hosts;
    launch::JobSpec way;
    way.transport = launch::TransportKind::kSsh;
    way.ssh_config_path = job.ssh_config;
    if (job.transport == "openssh") way.transport = launch::TransportKind::kOpenSsh;
    if (job.transport == "local" || hosts.empty()) {
        way.transport = launch::TransportKind::kLocal;
        hosts = {{"localhost", "", 0, ""}};  // simulated hosts are all this machine
    }
    const auto transport = launch::make_transport(way);
    std::vector<LeftOnHost> left;
    for (const launch::HostAnswer& answer : launch::ask_hosts(
             hosts, *transport, -1,
             {launch::FrameKind::kStopJob, launch::encode(launch::StopJobRequest{job.launch_id}),
              launch::FrameKind::kJobStopped, kHostsMax, kHostsMax})) {
        left.push_back({answer.host, answer.error, {}});
        if (answer.payload)
            left.back().processes = launch::decode<launch::StopJobReply>(*answer.payload).processes;
    }
    return left;
}

void print_json(const KnownJob& job, const std::string& launcher,
                const std::vector<LeftOnHost>& left) {
    JsonWriter json;
    json.begin_object().field("job_id", job.id).field("launcher", launcher);
    json.key("hosts").begin_array();
    for (const LeftOnHost& host : left) {
        json.begin_object().field("name", host.host).field("error", host.error);
        json.key("processes").begin_array();
        for (const launch::LeftProcess& process : host.processes) {
            json.begin_object().field("pid", process.name.pid).field("command", process.command);
            json.field("gpus", process.gpus).field("ended", process.ended).end_object();
        }
        json.end_array().end_object();
    }
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

void print_left(const std::vector<LeftOnHost>& left) {
    size_t count = 0;
    for (const LeftOnHost& host : left) {
        if (!host.error.empty())
            fmt::print("  {}: cannot reach this host: {}\n", host.host, host.error);
        for (const launch::LeftProcess& process : host.processes) {
            ++count;
            fmt::print("  {}: process {} ({}){} {}\n", host.host, process.name.pid,
                       printable(process.command),
                       process.gpus.empty() ? "" : " on GPU " + printable(process.gpus),
                       process.ended ? "was still running and has been ended"
                                     : "is still running and cannot be ended");
        }
    }
    if (count == 0) fmt::print("  no process of the job was left on the hosts that were reached\n");
}

int verdict(const std::vector<LeftOnHost>& left) {
    int code = 0;
    for (const LeftOnHost& host : left) {
        if (!host.error.empty()) code = static_cast<int>(ExitCode::kHosts);
        for (const launch::LeftProcess& process : host.processes) {
            if (!process.ended) return static_cast<int>(ExitCode::kSetup);
        }
    }
    return code;
}

// Returns the ids of the jobs that run, "3f2a, 77b0", or "none".
std::string running_text(const std::vector<KnownJob>& jobs) {
    std::vector<std::string> ids;
    for (const KnownJob& job : jobs)
        if (job.lives) ids.push_back(job.id);
    return ids.empty() ? "none" : join(ids, ", ");
}

int stop_job(const StopArguments& arguments) {
    const std::string state = own_state_directory();
    if (arguments.job == "all")
        fail(ExitCode::kUsage, "name one job to end, by its id or its --output folder; running: {}",
             running_text(read_jobs(state)));
    if (arguments.job.empty() && std::ranges::none_of(read_jobs(state), &KnownJob::lives))
        fail(ExitCode::kUsage,
             "no job is running on this machine; name the job that you mean: `dslaunch ps --all` "
             "lists the jobs that ended");
    const KnownJob job = find_job(state, arguments.job);
    if (!job.is_here && job.state != "ended")
        fail(ExitCode::kUsage, "job {} was started on {}: stop it there", job.id,
             printable(job.machine));
    std::string launcher = job.state == "lost" ? "was dead already" : "had ended already";
    if (job.lives) launcher = end_launcher(job, arguments.now);
    const bool was_killed = launcher.starts_with("killed");
    std::vector<LeftOnHost> left;
    if (!job.lives || was_killed) left = end_leftovers(job);
    if (arguments.json) {
        print_json(job, launcher, left);
    } else {
        fmt::print("job {}: its launcher {}\n", job.id, launcher);
        if (!job.lives || was_killed) print_left(left);
    }
    return verdict(left);
}

constexpr int64_t kGraceSeconds = 10;
constexpr int64_t kGraceSecondsMax = 600;
// The host answers when the process has ended, at most 2 s after KILL.
constexpr std::chrono::seconds kAnswerMore{30};

HelpPage stop_process_page() {
    return {.does =
                "Ends one of your processes on a host. Shows the process and asks you to confirm, "
                "then sends TERM, and KILL after the grace time. `dslaunch ps --devices` lists who "
                "uses GPUs. If a rank of a job ends, its whole job ends; to save first, use "
                "`dslaunch stop JOB`.",
            .examples = {"dslaunch stop --pid node1:4711", "dslaunch stop --pid node1:4711 --yes"},
            .exit_codes = "67 when the host cannot be reached, 71 when the process does not end.",
            .docs = "docs/guide/jobs.md",
            .usage = {"dslaunch stop --pid HOST:PID [options]"}};
}

struct ProcessPlace {
    std::string host;
    int64_t pid = 0;
};

ProcessPlace parse_place(const std::string& text) {
    const size_t colon = text.rfind(':');
    const auto pid = colon == std::string::npos ? std::nullopt : parse_int(text.substr(colon + 1));
    if (!pid || *pid <= 1 || *pid > INT32_MAX || colon == 0)
        fail(ExitCode::kUsage,
             "--pid {}: expected HOST:PID as `dslaunch ps --devices` prints it, for example "
             "te3:4711",
             printable(text));
    return {text.substr(0, colon), *pid};
}

bool agrees(const std::string& question) {
    if (::isatty(STDIN_FILENO) == 0)
        fail(ExitCode::kUsage,
             "{}: cannot ask whether to end it, since there is no terminal; give --yes", question);
    fmt::print("{}. End it? [y/N] ", question);
    std::fflush(stdout);
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "Y" || answer == "yes";
}

struct StopProcessArguments {
    std::string place;
    bool yes = false;
    bool now = false;
    bool json = false;
    int64_t grace_s = kGraceSeconds;
};

// Asks the first host, which must be the only one, and returns the payload of its answer.
std::string ask_host(const HostTargets& targets, launch::HostQuestion question) {
    const auto transport = launch::make_job_transport(targets.spec);
    question.connect_max = targets.spec.connect_max;
    const auto answers = launch::ask_hosts(targets.hosts, *transport, -1, question);
    if (!answers.front().payload)
        fail(ExitCode::kHosts, "{}: cannot ask this host: {}", printable(answers.front().host),
             answers.front().error);
    return *answers.front().payload;
}

launch::DeviceProcess look_at(const HostTargets& targets, const ProcessPlace& place) {
    const launch::DeviceUseReport report = launch::decode<launch::DeviceUseReport>(ask_host(
        targets, {launch::FrameKind::kDevices, launch::encode(launch::DeviceUseRequest{place.pid}),
                  launch::FrameKind::kDeviceReport}));
    const auto process = std::ranges::find_if(report.processes, [&](const auto& one) {
        return one.name.pid == place.pid && one.name.start_time != 0;
    });
    if (process == report.processes.end())
        fail(ExitCode::kUsage, "there is no process {} on {}", place.pid, printable(place.host));
    if (!process->is_own)
        fail(ExitCode::kUsage, "{} on {}: is not your process; ask {} to end it",
             describe(*process, {}), printable(place.host), printable(process->user));
    return *process;
}

int end_it(const HostTargets& targets, const StopProcessArguments& arguments,
           const ProcessPlace& place, const launch::DeviceProcess& process) {
    const int64_t grace_s = arguments.now ? 0 : arguments.grace_s;
    launch::HostQuestion question{
        launch::FrameKind::kEndProcess,
        launch::encode(launch::EndProcessRequest{process.name, grace_s * 1000}),
        launch::FrameKind::kProcessEnded};
    question.answer_max = std::chrono::seconds(grace_s) + kAnswerMore;
    const launch::EndProcessReply reply =
        launch::decode<launch::EndProcessReply>(ask_host(targets, question));
    const std::string outcome = !reply.error.empty() ? printable(reply.error)
                                : reply.was_killed   ? "killed"
                                                     : "ended as asked";
    if (arguments.json) {
        JsonWriter json;
        json.begin_object().field("host", place.host).field("pid", place.pid);
        json.field("ended", reply.has_ended).field("killed", reply.was_killed);
        json.field("error", reply.error).end_object();
        fmt::print("{}\n", json.text());
    } else {
        fmt::print(reply.has_ended ? stdout : stderr, "{}: process {}: {}\n", printable(place.host),
                   place.pid, outcome);
    }
    return reply.has_ended ? 0 : static_cast<int>(ExitCode::kSetup);
}

int stop_process_command(std::span<const std::string> arguments) {
    StopProcessArguments given;
    const HostCommand syntax{
        stop_process_page(),
        {{"pid", "HOST:PID", "the process", [&](const std::string& value) { given.place = value; }},
         {"yes,y", "", "do not ask", [&](const std::string&) { given.yes = true; }},
         {"now", "", "send TERM and KILL at once, without grace time",
          [&](const std::string&) { given.now = true; }},
         {"grace", "SECONDS", "time from TERM to KILL, default 10",
          [&](const std::string& value) {
              const auto seconds = parse_int(value);
              if (!seconds || *seconds < 0 || *seconds > kGraceSecondsMax)
                  fail(ExitCode::kUsage,
                       "--grace {}: must be a whole number of seconds from 0 to {}",
                       printable(value), kGraceSecondsMax);
              given.grace_s = *seconds;
          }},
         {"json", "", "print one JSON object: host, pid, ended, killed, error",
          [&](const std::string&) { given.json = true; }}}};
    // `stop --pid --help` names no process.
    const bool asks_for_help = arguments.size() == 2 && arguments.back() == "--help";
    ParsedCommand parsed =
        parse_host_command(arguments.last(asks_for_help ? 1 : arguments.size()), syntax);
    if (parsed.help) return 0;
    if (!parsed.words.empty())
        fail(ExitCode::kUsage, "unexpected `{}`: give either a job or --pid, not both",
             printable(parsed.words.front()));
    const ProcessPlace place = parse_place(given.place);
    parsed.hosts.host_list = place.host;
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    const launch::DeviceProcess process = look_at(targets, place);
    const std::string question = fmt::format("{}: {}", printable(place.host),
                                             describe(process, read_jobs(own_state_directory())));
    if (!given.yes && !agrees(question)) {
        fmt::print("the process was not ended\n");
        return 0;
    }
    return end_it(targets, given, place, process);
}

}  // namespace

int stop_command(std::span<const std::string> arguments) {
    const bool is_process = std::ranges::any_of(arguments, [](const std::string& word) {
        return word == "--pid" || word.starts_with("--pid=");
    });
    if (is_process) return stop_process_command(arguments);
    std::string place;  // handled above; declared for the help
    StopArguments parsed;
    CommandLine app(
        {.does = "Ends a job, or the processes that a dead job left on its hosts.",
         .examples = {"dslaunch stop 3f2a", "dslaunch stop --pid node1:4711"},
         .docs = "docs/guide/jobs.md",
         .usage = {"dslaunch stop [options] JOB", "dslaunch stop --pid HOST:PID [options]"}},
        "dslaunch stop");
    app.add("JOB", parsed.job, "the job's id, the first letters of its id, or its --output folder");
    app.add("--pid HOST:PID", place, "end one process on a host instead (see stop --pid --help)");
    app.add("--now", parsed.now, "end the job at once, without time to save");
    app.add("--json", parsed.json, "one JSON object");
    return app.parse({arguments.begin(), arguments.end()}) ? stop_job(parsed) : 0;
}

}  // namespace dslaunch::launcher
