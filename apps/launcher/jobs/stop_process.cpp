// `dslaunch stop --pid HOST:PID`: ends one process of the user's own on a host, after asking.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/tree_transport.h"
#include "launcher/hosts/host_command.h"
#include "launcher/jobs/device_list.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

constexpr int64_t kGraceSeconds = 10;
constexpr int64_t kGraceSecondsMax = 600;
// An answer comes with the end of the process, at most 2 s after KILL.
constexpr std::chrono::seconds kAnswerMore{30};

HelpPage stop_process_page() {
    return {.does =
                "Ends one of your processes on a host. It shows the process and asks, then sends "
                "TERM, and KILL after the grace time. `dslaunch ps --devices` lists who uses GPUs. "
                "The end of a rank ends its whole job; `dslaunch stop JOB` saves first.",
            .examples = {"dslaunch stop --pid node1:4711", "dslaunch stop --pid node1:4711 --yes"},
            .exit_codes = "67 when the host cannot be asked, 71 when the process does not end.",
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
             "--pid {}: give HOST:PID, as `dslaunch ps --devices` prints them: te3:4711",
             printable(text));
    return {text.substr(0, colon), *pid};
}

bool agrees(const std::string& question) {
    if (::isatty(STDIN_FILENO) == 0)
        fail(ExitCode::kUsage, "{}: nobody can be asked whether to end it: give --yes", question);
    fmt::print("{}. End it? [y/N] ", question);
    std::fflush(stdout);
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "Y" || answer == "yes";
}

struct Arguments {
    std::string place;
    bool yes = false;
    bool now = false;
    bool json = false;
    int64_t grace_s = kGraceSeconds;
};

// Asks the one host and returns the answer's payload.
std::string ask(const HostTargets& targets, launch::HostQuestion question) {
    const auto transport = launch::make_job_transport(targets.spec);
    question.connect_max = targets.spec.connect_max;
    const auto answers = launch::ask_hosts(targets.hosts, *transport, -1, question);
    if (!answers.front().payload)
        fail(ExitCode::kHosts, "{}: not asked: {}", printable(answers.front().host),
             answers.front().error);
    return *answers.front().payload;
}

launch::DeviceProcess look_at(const HostTargets& targets, const ProcessPlace& place) {
    const launch::DeviceUseReport report = launch::decode<launch::DeviceUseReport>(ask(
        targets, {launch::FrameKind::kDevices, launch::encode(launch::DeviceUseRequest{place.pid}),
                  launch::FrameKind::kDeviceReport}));
    const auto process = std::ranges::find_if(report.processes, [&](const auto& one) {
        return one.name.pid == place.pid && one.name.start_time != 0;
    });
    if (process == report.processes.end())
        fail(ExitCode::kUsage, "there is no process {} on {}", place.pid, printable(place.host));
    if (!process->is_own)
        fail(ExitCode::kUsage, "{} on {}: not yours, ask {} to end it", describe(*process, {}),
             printable(place.host), printable(process->user));
    return *process;
}

int end_it(const HostTargets& targets, const Arguments& arguments, const ProcessPlace& place,
           const launch::DeviceProcess& process) {
    const int64_t grace_s = arguments.now ? 0 : arguments.grace_s;
    launch::HostQuestion question{
        launch::FrameKind::kEndProcess,
        launch::encode(launch::EndProcessRequest{process.name, grace_s * 1000}),
        launch::FrameKind::kProcessEnded};
    question.answer_max = std::chrono::seconds(grace_s) + kAnswerMore;
    const launch::EndProcessReply reply =
        launch::decode<launch::EndProcessReply>(ask(targets, question));
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

}  // namespace

int stop_process_command(std::span<const std::string> arguments) {
    Arguments given;
    const HostCommand syntax{
        stop_process_page(),
        {{"pid", "HOST:PID", "the process", [&](const std::string& value) { given.place = value; }},
         {"yes,y", "", "do not ask", [&](const std::string&) { given.yes = true; }},
         {"now", "", "TERM and KILL at once, without grace time",
          [&](const std::string&) { given.now = true; }},
         {"grace", "SECONDS", "from TERM to KILL, default 10",
          [&](const std::string& value) {
              const auto seconds = parse_int(value);
              if (!seconds || *seconds < 0 || *seconds > kGraceSecondsMax)
                  fail(ExitCode::kUsage, "--grace {}: a whole number of seconds up to {}",
                       printable(value), kGraceSecondsMax);
              given.grace_s = *seconds;
          }},
         {"json", "", "one JSON object: host, pid, ended, killed, error",
          [&](const std::string&) { given.json = true; }}}};
    // `stop --pid --help` has no process.
    const bool asks_for_help = arguments.size() == 2 && arguments.back() == "--help";
    ParsedCommand parsed =
        parse_host_command(arguments.last(asks_for_help ? 1 : arguments.size()), syntax);
    if (parsed.help) return 0;
    if (!parsed.words.empty())
        fail(ExitCode::kUsage, "unexpected `{}`: a job and --pid exclude each other",
             printable(parsed.words.front()));
    const ProcessPlace place = parse_place(given.place);
    parsed.hosts.host_list = place.host;
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    const launch::DeviceProcess process = look_at(targets, place);
    const std::string question = fmt::format("{}: {}", printable(place.host),
                                             describe(process, read_jobs(own_state_directory())));
    if (!given.yes && !agrees(question)) {
        fmt::print("left as it is\n");
        return 0;
    }
    return end_it(targets, given, place, process);
}

}  // namespace dslaunch::launcher
