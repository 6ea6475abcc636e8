// `dslaunch hosts check`: shows the state of all hosts in one table.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/bytes.h"
#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "launch/files/file_facts.h"
#include "launch/fleet/host_question.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/tree_transport.h"
#include "launcher/hosts/host_command.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

HelpPage check_page() {
    return {
        .does =
            "Contacts all hosts at once and prints the state of each: response time, address, "
            "kernel, cores, GPUs, dslaunch, free memory, free disk space in the current directory, "
            "clock and limits; for each GPU also its memory, driver, ECC errors, link (NVLink or "
            "PCIe) and who uses it. Lists each host that has a problem, with the cause.",
        .examples = {"dslaunch hosts check --hostfile hostfile",
                     "dslaunch hosts check -w node[1-4] --json"},
        .exit_codes = "67 when a host has a problem.",
        .docs = "docs/guide/hosts.md",
        .usage = {"dslaunch hosts check [options]"}};
}

// Returns BYTES as text, or "?" if BYTES is -1 because the host does not report the number.
std::string bytes_text(int64_t bytes) {
    return bytes < 0 ? "?" : to_text(Bytes{bytes});
}

std::string limit_text(int64_t limit, bool is_bytes) {
    if (limit < 0) return "unlimited";
    return is_bytes ? to_text(Bytes{limit}) : std::to_string(limit);
}

std::string clock_text(const launch::ClockOffset& clock) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    return fmt::format("{:+.1f} ms ±{:.1f}", Milliseconds(clock.offset).count(),
                       Milliseconds(clock.bound).count());
}

std::string disk_text(const launch::NodeReport& report) {
    if (report.disk_error.empty()) return bytes_text(report.disk_free_bytes);
    return report.disk_error == errno_text(ENOENT) ? "no folder" : printable(report.disk_error);
}

std::vector<std::string> row_of(const launch::Fleet::Node& node, const launch::HostState& state) {
    const launch::AgentHello& hello = node.hello;
    std::vector<std::string> row = {printable(node.address.name),
                                    state.faults.empty() ? "good" : "BAD"};
    if (!node.greeted) {
        row.resize(14, "-");
        return row;
    }
    const launch::NodeReport report = state.report.value_or(launch::NodeReport{});
    row.push_back(fmt::format("{} ms", state.answer_time.count()));
    row.push_back(hello.arrival_address.empty() ? "-" : printable(hello.arrival_address));
    row.push_back(printable(hello.kernel));
    row.push_back(std::to_string(hello.cores));
    row.push_back(std::to_string(hello.gpus));
    row.push_back(printable(hello.version) + (state.same_binary ? " equal" : " DIFFERS"));
    row.push_back(bytes_text(report.memory_free_bytes));
    row.push_back(disk_text(report));
    row.push_back(state.report ? clock_text(state.clock) : "-");
    row.push_back(limit_text(report.locked_memory_max, true));
    row.push_back(limit_text(report.open_files_max, false));
    row.push_back(bytes_text(report.shared_memory_bytes));
    return row;
}

std::string holders_text(const launch::DeviceUseReport& devices, int64_t gpu) {
    std::vector<std::string> holders;
    for (const launch::DeviceProcess& process : devices.processes)
        for (const launch::GpuHold& hold : process.holds) {
            if (hold.gpu != gpu) continue;
            std::string text = fmt::format("{} of {}", process.name.pid,
                                           process.user.empty() ? "?" : printable(process.user));
            if (hold.bytes >= 0) text += fmt::format(" ({})", to_text(Bytes{hold.bytes}));
            holders.push_back(std::move(text));
        }
    return holders.empty() ? "-" : join(holders, ", ");
}

// Returns a table with one row per GPU, or an empty text if no host has a GPU.
std::string gpu_table(const launch::Fleet& fleet, const std::vector<launch::HostState>& states) {
    std::vector<std::vector<std::string>> rows = {
        {"host", "GPU", "name", "memory", "in use", "driver", "ECC errors", "link", "held by"}};
    const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
    for (size_t i = 0; i < states.size(); ++i)
        for (const launch::Gpu& gpu : states[i].devices.gpus)
            rows.push_back({printable(fleet.nodes()[i].address.name), std::to_string(gpu.index),
                            or_dash(printable(gpu.name)), bytes_text(gpu.memory_bytes),
                            bytes_text(gpu.used_bytes), or_dash(printable(gpu.driver)),
                            gpu.ecc_errors < 0 ? "-" : std::to_string(gpu.ecc_errors),
                            or_dash(launch::link_text(gpu)),
                            holders_text(states[i].devices, gpu.index)});
    if (rows.size() == 1) return "";
    return "\n" + text_table(rows, {.width = terminal_columns(1)});
}

void print_table(const launch::Fleet& fleet, const std::vector<launch::HostState>& states) {
    std::vector<std::vector<std::string>> rows = {
        {"host", "state", "answered", "address", "kernel", "cores", "GPUs", "dslaunch",
         "free memory", "free disk", "clock", "memlock", "nofile", "/dev/shm"}};
    for (size_t i = 0; i < states.size(); ++i) rows.push_back(row_of(fleet.nodes()[i], states[i]));
    fmt::print("{}{}", text_table(rows, {.width = terminal_columns(1)}), gpu_table(fleet, states));
    for (size_t i = 0; i < states.size(); ++i)
        if (const std::string& note = states[i].devices.note; !note.empty())
            fmt::print("{}: {}\n", printable(fleet.nodes()[i].address.name), printable(note));
    std::fflush(stdout);
}

void print_faults(const launch::Fleet& fleet, const std::vector<launch::HostState>& states,
                  size_t bad) {
    print_message(fmt::format("dslaunch: {} of {} {} problems:", bad,
                              counted(std::ssize(states), "host"), bad == 1 ? "has" : "have"));
    for (size_t i = 0; i < states.size(); ++i) {
        if (states[i].faults.empty()) continue;
        print_message(fmt::format("  {}: {}", printable(fleet.nodes()[i].address.name),
                                  join(states[i].faults, "; ")));
    }
}

void print_json(const launch::Fleet& fleet, const std::vector<launch::HostState>& states) {
    JsonWriter json;
    json.begin_object().key("hosts").begin_array();
    for (size_t i = 0; i < states.size(); ++i) {
        const launch::Fleet::Node& node = fleet.nodes()[i];
        const launch::HostState& state = states[i];
        json.begin_object().field("host", node.address.name).field("good", state.faults.empty());
        json.key("faults").begin_array();
        for (const std::string& fault : state.faults) json.value(fault);
        json.end_array();
        if (node.greeted) {
            json.field("answer_ms", state.answer_time.count());
            json.field("address", node.hello.arrival_address);
            json.field("host_name", node.hello.host_name).field("kernel", node.hello.kernel);
            json.field("processor", node.hello.processor);
            json.field("cores", node.hello.cores).field("gpus", node.hello.gpus);
            json.field("version", node.hello.version).field("same_binary", state.same_binary);
        }
        if (state.report) {
            json.field("memory_bytes", state.report->memory_bytes);
            json.field("memory_free_bytes", state.report->memory_free_bytes);
            json.field("disk_free_bytes", state.report->disk_free_bytes);
            json.field("disk_error", state.report->disk_error);
            json.field("shared_memory_bytes", state.report->shared_memory_bytes);
            json.field("locked_memory_max", state.report->locked_memory_max);
            json.field("open_files_max", state.report->open_files_max);
            json.field("clock_offset_ns", state.clock.offset.count());
            json.field("clock_bound_ns", state.clock.bound.count());
            json.key("devices").begin_object();
            device_report_fields(
                state.devices, [](const launch::DeviceProcess&) { return std::string(); }, json);
            json.end_object();
        }
        json.end_object();
    }
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

int check(std::span<const std::string> arguments) {
    bool as_json = false;
    std::string directory;
    const HostCommand syntax{
        check_page(),
        {{"chdir", "DIR",
          "directory that every host must have and whose free disk space is shown; default: the "
          "current one, which may be missing on a host",
          [&](const std::string& value) { directory = value; }},
         {"json", "",
          "print one JSON object; sizes in bytes, times in nanoseconds, -1 for unlimited",
          [&](const std::string&) { as_json = true; }}}};
    ParsedCommand parsed = parse_host_command(arguments, syntax);
    if (parsed.help) return 0;
    if (!parsed.words.empty()) {
        fail(ExitCode::kUsage, "unexpected `{}`; name the hosts with --hostfile",
             printable(parsed.words.front()));
    }
    parsed.hosts.working_directory = directory;
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);
    const HostTargets targets = find_hosts(parsed.hosts);
    const auto transport = launch::make_job_transport(targets.spec);
    launch::Fleet fleet(targets.hosts, *transport, signals.get());
    fleet.connect(targets.spec.connect_max, true);
    const auto states = launch::check_hosts(
        fleet, {targets.spec.working_directory, !directory.empty(), launch::own_binary_hash()});
    fleet.stop();
    if (fleet.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
    launch::release_end_signals();  // from here on Ctrl-C ends this program at once
    if (as_json) {
        print_json(fleet, states);
    } else {
        print_table(fleet, states);
    }
    const auto bad = static_cast<size_t>(
        std::count_if(states.begin(), states.end(),
                      [](const launch::HostState& state) { return !state.faults.empty(); }));
    if (bad == 0) return 0;
    print_faults(fleet, states, bad);
    return static_cast<int>(ExitCode::kHosts);
}

struct HostsSubcommand {
    const char* name;
    HelpPage (*page)();
    int (*run)(std::span<const std::string> words);
};

constexpr HostsSubcommand kSubcommands[] = {{"check", check_page, check},
                                            {"trust", trust_page, trust_command}};

HelpPage hosts_page() {
    HelpPage page{
        .does = "Shows the state of all hosts, or sets up ssh keys and known_hosts for all.",
        .docs = "docs/guide/hosts.md",
        .usage = {"dslaunch hosts SUBCOMMAND [options]"},
        .groups = {{"subcommands", {}}, {"options", {{"-h, --help", "this text"}}}}};
    for (const HostsSubcommand& row : kSubcommands)
        page.groups.front().entries.push_back({row.name, brief_of(row.page())});
    return page;
}

std::string subcommand_names() {
    std::vector<std::string> names;
    for (const HostsSubcommand& row : kSubcommands) names.emplace_back(row.name);
    return join(names, ", ");
}

}  // namespace

int hosts_command(std::span<const std::string> arguments) {
    if (arguments.empty())
        fail(ExitCode::kUsage, "hosts: a subcommand is missing; use one of: {}",
             subcommand_names());
    if (arguments[0] == "--help" || arguments[0] == "-h") {
        print_help(hosts_page());
        return 0;
    }
    for (const HostsSubcommand& row : kSubcommands)
        if (arguments[0] == row.name) return row.run(arguments.subspan(1));
    fail(ExitCode::kUsage, "`hosts {}` is not a subcommand; use one of: {}",
         printable(arguments[0]), subcommand_names());
}

}  // namespace dslaunch::launcher
