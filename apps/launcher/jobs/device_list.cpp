#include "launcher/jobs/device_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/tree_transport.h"
#include "launcher/hosts/host_command.h"

namespace dslaunch::launcher {
namespace {

HelpPage devices_page() {
    return {
        .does =
            "Lists which processes use which GPU of the hosts, and how much memory they use. Asks "
            "all hosts of the hostfile, or only this machine if there is none. Shows the processes "
            "of all users, as nvidia-smi does; a process that you started with dslaunch is shown "
            "with its job. `dslaunch stop --pid HOST:PID` ends one of your processes.",
        .examples = {"dslaunch ps --devices --hostfile hostfile"},
        .exit_codes = "67 when a host cannot be reached.",
        .docs = "docs/guide/jobs.md",
        .usage = {"dslaunch ps --devices [options]"}};
}

std::string bytes_text(int64_t bytes) {
    return bytes < 0 ? "-" : to_text(Bytes{bytes});
}

std::string job_of(const launch::DeviceProcess& process, const std::vector<KnownJob>& jobs) {
    if (process.launch_id.empty()) return "";
    const auto job = std::ranges::find(jobs, process.launch_id, &KnownJob::launch_id);
    return job == jobs.end() ? "" : job->id;
}

std::string job_text(const launch::DeviceProcess& process, const std::vector<KnownJob>& jobs) {
    if (process.launch_id.empty()) return "-";
    const std::string job = job_of(process, jobs);
    const std::string name = job.empty() ? "started on another machine" : job;
    return process.rank < 0 ? name : fmt::format("{}, rank {}", name, process.rank);
}

std::vector<std::string> gpu_cells(const std::string& host, const launch::Gpu& gpu) {
    return {printable(host), std::to_string(gpu.index),
            gpu.name.empty() ? "-" : printable(gpu.name),
            fmt::format("{} of {}", bytes_text(gpu.used_bytes), bytes_text(gpu.memory_bytes))};
}

}  // namespace

std::vector<HostDevices> decode_devices(const std::vector<launch::HostAnswer>& answers) {
    std::vector<HostDevices> hosts;
    for (const launch::HostAnswer& answer : answers) {
        hosts.push_back({answer.host, answer.error, {}});
        if (answer.payload)
            hosts.back().report = launch::decode<launch::DeviceUseReport>(*answer.payload);
    }
    return hosts;
}

std::string device_table(const std::vector<HostDevices>& hosts, const std::vector<KnownJob>& jobs) {
    std::vector<std::vector<std::string>> rows = {
        {"host", "GPU", "name", "memory used", "pid", "user", "command", "age", "holds", "job"}};
    for (const HostDevices& host : hosts) {
        for (const launch::Gpu& gpu : host.report.gpus) {
            std::vector<std::string> cells = gpu_cells(host.host, gpu);
            const size_t before = rows.size();
            for (const launch::DeviceProcess& process : host.report.processes) {
                for (const launch::GpuHold& hold : process.holds) {
                    if (hold.gpu != gpu.index) continue;
                    std::vector<std::string> row = cells;
                    const bool known = process.name.start_time != 0;
                    row.insert(row.end(), {std::to_string(process.name.pid),
                                           process.user.empty() ? "?" : printable(process.user),
                                           known ? printable(process.command) : "not visible here",
                                           process.age_s < 0 ? "-" : age_text(process.age_s),
                                           bytes_text(hold.bytes), job_text(process, jobs)});
                    rows.push_back(std::move(row));
                }
            }
            if (rows.size() > before) continue;
            cells.insert(cells.end(), {"-", "-", "free", "-", "-", "-"});
            rows.push_back(std::move(cells));
        }
    }
    return text_table(rows, {.width = terminal_columns(1)});
}

std::string devices_json(const std::vector<HostDevices>& hosts, const std::vector<KnownJob>& jobs) {
    JsonWriter json;
    json.begin_object().key("hosts").begin_array();
    for (const HostDevices& host : hosts) {
        json.begin_object().field("host", host.host).field("error", host.error);
        device_report_fields(
            host.report,
            [&](const launch::DeviceProcess& process) { return job_of(process, jobs); }, json);
        json.end_object();
    }
    json.end_array().end_object();
    return json.text();
}

std::string describe(const launch::DeviceProcess& process, const std::vector<KnownJob>& jobs) {
    std::string text = fmt::format("process {} ({}) of {}", process.name.pid,
                                   printable(process.command), printable(process.user));
    if (process.age_s >= 0) text += fmt::format(", {} old", age_text(process.age_s));
    std::vector<std::string> gpus;
    for (const launch::GpuHold& hold : process.holds)
        gpus.push_back(hold.bytes < 0
                           ? fmt::format("GPU {}", hold.gpu)
                           : fmt::format("GPU {} ({})", hold.gpu, to_text(Bytes{hold.bytes})));
    text += gpus.empty() ? ", uses no GPU" : ", holds " + join(gpus, ", ");
    if (process.launch_id.empty()) return text;
    const std::string job = job_of(process, jobs);
    return text +
           fmt::format(", {}{}",
                       process.rank < 0 ? "part of " : fmt::format("rank {} of ", process.rank),
                       job.empty() ? "a job started on another machine" : "job " + job);
}

int list_devices(std::span<const std::string> arguments) {
    bool as_json = false;
    const HostCommand syntax{
        devices_page(),
        {{"devices", "", "list GPUs of the hosts instead of jobs", [](const std::string&) {}},
         {"json", "", "print one JSON object; sizes in bytes, times in seconds, -1 where unknown",
          [&](const std::string&) { as_json = true; }}}};
    const ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (!parsed.words.empty())
        fail(ExitCode::kUsage, "unexpected `{}`; name the hosts with --hostfile or --hosts",
             printable(parsed.words.front()));
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    const auto transport = launch::make_job_transport(targets.spec);
    launch::HostQuestion question{launch::FrameKind::kDevices,
                                  launch::encode(launch::DeviceUseRequest{}),
                                  launch::FrameKind::kDeviceReport};
    question.connect_max = targets.spec.connect_max;
    const std::vector<HostDevices> hosts =
        decode_devices(launch::ask_hosts(targets.hosts, *transport, signals.get(), question));
    launch::release_end_signals();  // from here on Ctrl-C ends this program at once
    const std::vector<KnownJob> jobs = read_jobs(own_state_directory());
    if (as_json) {
        fmt::print("{}\n", devices_json(hosts, jobs));
    } else if (std::ranges::any_of(
                   hosts, [](const HostDevices& host) { return !host.report.gpus.empty(); })) {
        fmt::print("{}", device_table(hosts, jobs));
    }
    std::fflush(stdout);
    int code = 0;
    for (const HostDevices& host : hosts) {
        if (!host.error.empty()) {
            print_message(fmt::format("dslaunch: {}: cannot ask this host: {}",
                                      printable(host.host), host.error));
            code = static_cast<int>(ExitCode::kHosts);
        } else if (host.report.gpus.empty() && !as_json) {
            print_message(fmt::format("dslaunch: {}: this host has no GPU", printable(host.host)));
        } else if (!host.report.note.empty() && !as_json) {
            print_message(
                fmt::format("dslaunch: {}: {}", printable(host.host), printable(host.report.note)));
        }
    }
    return code;
}

}  // namespace dslaunch::launcher
