#include "launcher/hosts/host_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "launch/transport/transport.h"
#include "launcher/options/option_table.h"
#include "launcher/run/build_job.h"

namespace dslaunch::launcher {
namespace {

constexpr std::array<std::string_view, 9> kHostOptions = {"hostfile",  "include",    "exclude",
                                                          "num-nodes", "launcher",   "force-multi",
                                                          "ssh-port",  "ssh-config", "fanout"};
constexpr std::array<std::string_view, 3> kProgramOptions = {"env", "env-file", "chdir"};
// Options of `run` that only make sense for a target that the user names.
constexpr std::array<std::string_view, 9> kTargetOptions = {
    "help",  "all",    "module", "no-python", "no-local-rank",
    "grace", "verify", "listen", "token-file"};

bool is_taken(RunRows rows, const OptionRow& row) {
    const std::string_view name = row.names.substr(0, row.names.find(','));
    if (rows == RunRows::kJob) {
        return row.group != Group::kTraining && row.group != Group::kRefused &&
               std::ranges::count(kTargetOptions, name) == 0;
    }
    return std::ranges::count(kHostOptions, name) > 0 ||
           (rows == RunRows::kProgram && std::ranges::count(kProgramOptions, name) > 0);
}

}  // namespace

ParsedCommand parse_host_command(std::span<const std::string> arguments,
                                 const HostCommand& command) {
    ParsedCommand parsed;
    std::vector<Option> options = command.options;
    for (Option& option : run_rows(
             parsed.hosts, [&](const OptionRow& row) { return is_taken(command.run_rows, row); })) {
        const bool is_own = std::ranges::count(command.options, option.names, &Option::names) > 0;
        if (!is_own) options.push_back(std::move(option));
    }
    Option only{
        "hosts,w", "LIST",
        "use these hosts, such as h1,h2 or te[01-16]; with a hostfile, select these hosts from it",
        [&](const std::string& value) { parsed.hosts.host_list = value; }};
    Option without{"without,x", "LIST", "not these hosts",
                   [&](const std::string& value) { parsed.hosts.left_out_list = value; }};
    for (Option* option : {&only, &without}) {
        option->group = group_title(Group::kHosts);
        options.push_back(std::move(*option));
    }
    options.push_back({"help,h", "", "this text", [&](const std::string&) { parsed.help = true; }});
    std::stable_partition(options.begin(), options.end(),
                          [](const Option& option) { return bool(option.apply); });
    const auto rest = parse_options(options, arguments, [&](const std::string& word) {
        parsed.words.push_back(word);
        return command.run_rows == RunRows::kProgram;
    });
    parsed.words.insert(parsed.words.end(), rest.begin(), rest.end());
    if (parsed.help) {
        HelpPage page = command.help;
        page.groups = option_groups(options);
        print_help(page);
    }
    return parsed;
}

HostTargets find_hosts(const RunOptions& options) {
    RunOptions job = options;
    job.target = "true";
    job.device = launch::DeviceRequest::kCpu;
    BuiltJob built = build_job(job, Machine::this_one());
    print_notes(built, options);
    std::vector<launch::HostAddress> hosts = launch::addresses_of(built.spec.nodes);
    return {std::move(built.spec), std::move(hosts)};
}

void device_report_fields(const launch::DeviceUseReport& report,
                          const std::function<std::string(const launch::DeviceProcess&)>& job_of,
                          JsonWriter& json) {
    json.field("note", report.note).key("gpus").begin_array();
    for (const launch::Gpu& gpu : report.gpus) {
        json.begin_object().field("index", gpu.index).field("name", gpu.name);
        json.field("memory_bytes", gpu.memory_bytes).field("used_bytes", gpu.used_bytes);
        json.field("uuid", gpu.uuid).field("driver", gpu.driver);
        json.field("ecc_errors", gpu.ecc_errors).field("nvlinks", gpu.nvlinks);
        json.field("pcie_generation", gpu.pcie_generation).field("pcie_lanes", gpu.pcie_lanes);
        json.field("pcie_lanes_max", gpu.pcie_lanes_max).end_object();
    }
    json.end_array().key("processes").begin_array();
    for (const launch::DeviceProcess& process : report.processes) {
        json.begin_object().field("pid", process.name.pid).field("user", process.user);
        json.field("own", process.is_own).field("command", process.command);
        json.field("age_s", process.age_s).field("job_id", job_of(process));
        json.field("rank", process.rank).key("gpus").begin_array();
        for (const launch::GpuHold& hold : process.holds)
            json.begin_object().field("index", hold.gpu).field("bytes", hold.bytes).end_object();
        json.end_array().end_object();
    }
    json.end_array();
}

}  // namespace dslaunch::launcher
