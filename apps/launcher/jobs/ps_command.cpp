// `dslaunch ps`: lists the jobs of this user.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/path.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "launcher/jobs/device_list.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

struct PsArguments {
    bool all = false;
    bool json = false;
};

int64_t age_s(const KnownJob& job) {
    return (job.ended_at_s != 0 ? job.ended_at_s : std::time(nullptr)) - job.started_at_s;
}

void print_json(const std::vector<KnownJob>& jobs) {
    JsonWriter json;
    json.begin_array();
    for (const KnownJob& job : jobs) {
        json.begin_object().field("job_id", job.id).field("state", job.state);
        json.key("exit_code");
        job.exit_code ? json.value(*job.exit_code) : json.null();
        json.field("target", job.target).field("started_at", job.started_at_s);
        json.field("age_s", age_s(job)).field("machine", job.machine);
        json.field("launcher_pid", job.launcher.pid).field("ranks", job.world_size);
        json.field("restarts", job.restarts).field("max_restarts", job.max_restarts);
        json.key("step");
        job.step ? json.value(*job.step) : json.null();
        json.key("loss");
        job.loss ? json.value(*job.loss) : json.null();
        json.field("output", job.output).key("hosts").begin_array();
        for (size_t i = 0; i < job.hosts.size(); ++i) {
            if (job.host_ranks[i] > 0) json.value(job.hosts[i].name);
        }
        json.end_array().end_object();
    }
    json.end_array();
    fmt::print("{}\n", json.text());
}

// Returns the time at which the job started, as local time without the year.
std::string start_text(const KnownJob& job) {
    const std::time_t seconds = job.started_at_s;
    std::tm local{};
    char text[32] = "-";
    if (::localtime_r(&seconds, &local) != nullptr)
        static_cast<void>(std::strftime(text, sizeof text, "%m-%d %H:%M", &local));
    return text;
}

// Returns PATH relative to the current folder.
std::string place_text(const std::string& path) {
    return path.empty() ? "-" : printable(path_from_here(path));
}

void print_table(const std::vector<KnownJob>& jobs) {
    std::vector<std::vector<std::string>> rows = {
        {"job", "state", "started", "took", "hosts", "ranks", "step", "loss", "output", "target"}};
    for (const KnownJob& job : jobs) {
        rows.push_back({job.id, state_text(job), start_text(job), age_text(age_s(job)),
                        std::to_string(job.hosts_in_use()), std::to_string(job.world_size),
                        job.step ? std::to_string(*job.step) : "-",
                        job.loss ? fmt::format("{:.4f}", *job.loss) : "-", place_text(job.output),
                        place_text(job.target)});
    }
    fmt::print("{}", text_table(rows, {.align = "<<<>>>>><<", .width = terminal_columns(1)}));
}

int list_jobs(const PsArguments& arguments) {
    std::vector<KnownJob> jobs = read_jobs(own_state_directory());
    if (!arguments.all) std::erase_if(jobs, [](const KnownJob& job) { return !job.lives; });
    if (arguments.json) {
        print_json(jobs);
    } else if (jobs.empty()) {
        print_message(fmt::format(
            "dslaunch: no job {} on this machine{}. A server that `dslaunch serve` started is not "
            "a job: it runs until Ctrl-C in its terminal",
            arguments.all ? "is known" : "is running",
            arguments.all ? "" : "; `dslaunch ps --all` lists those that ended"));
    } else {
        print_table(jobs);
    }
    return 0;
}

}  // namespace

int ps_command(std::span<const std::string> arguments) {
    if (std::ranges::find(arguments, "--devices") != arguments.end())
        return list_devices(arguments);
    bool devices = false;  // handled above; declared for the help
    PsArguments parsed;
    CommandLine app({.does = "Lists the running jobs of this user on this machine.",
                     .examples = {"dslaunch ps --all", "dslaunch ps --devices -H hostfile"},
                     .docs = "docs/guide/jobs.md",
                     .usage = {"dslaunch ps [options]", "dslaunch ps --devices [options]"}},
                    "dslaunch ps");
    app.add("-a,--all", parsed.all,
            "also list jobs that ended (the newest 100), were lost, or run on another machine");
    app.add("--json", parsed.json, "one JSON array");
    app.add(
        "--devices", devices,
        "list the GPUs of the hosts and who uses them, instead of jobs (see ps --devices --help)");
    return app.parse({arguments.begin(), arguments.end()}) ? list_jobs(parsed) : 0;
}

}  // namespace dslaunch::launcher
