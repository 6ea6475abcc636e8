#include "launcher/run/job_environment.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/plan/environment_file.h"
#include "launch/plan/join_token.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch::launcher {
namespace {

constexpr size_t kEnvironmentFileBytesMax = 1U << 20;

// Adds the variables in the file PATH to RULES.
void add_env_file(const std::string& path, launch::EnvironmentRules& rules) {
    std::string text;
    try {
        text = read_file(path, kEnvironmentFileBytesMax);
    } catch (const Error& error) {
        fail(ExitCode::kUsage, "environment file {}", error.what());
    }
    const launch::EnvironmentFile file = launch::parse_environment_file(text, path);
    for (const int64_t place : file.expanded)
        rules.expanded.push_back(std::ssize(rules.set) + place);
    rules.set.insert(rules.set.end(), file.variables.begin(), file.variables.end());
}

// Adds the variables that workers on other hosts get from this machine: variables with the prefixes
// of has_forwarded_prefix(), the path of Python modules, and the files .deepspeed_env.
void add_launcher_variables(const Machine& machine, const launch::JobSpec& spec,
                            launch::EnvironmentRules& rules) {
    for (const auto& [name, value] : machine.environment) {
        // srun passes all variables on. Only variables that name a network interface must also be
        // in RULES.
        if (spec.transport == launch::TransportKind::kSlurm && !name.ends_with("_SOCKET_IFNAME"))
            continue;
        if (launch::has_forwarded_prefix(name)) rules.set.emplace_back(name, value);
    }
    // Scripts can import files that are in their folder, on every host, as under deepspeed. An
    // agent that connects by itself uses its container's own paths.
    if (spec.target_kind != launch::TargetKind::kModel &&
        spec.transport != launch::TransportKind::kJoin) {
        const std::string before = machine.variable("PYTHONPATH").value_or("");
        launch::set_variable(rules.set, "PYTHONPATH",
                             spec.working_directory + (before.empty() ? "" : ":" + before));
    }
    for (const std::string& directory :
         {machine.variable("HOME").value_or(""), machine.directory}) {
        const std::string path =
            directory + "/" + machine.variable("DS_ENV_FILE").value_or(".deepspeed_env");
        if (!directory.empty() && access(path.c_str(), F_OK) == 0) add_env_file(path, rules);
    }
}

// Adds the variables of --env. An entry is NAME=VALUE, or NAME alone to take the value from this
// machine.
void add_given(const std::vector<std::string>& entries, const Machine& machine,
               launch::EnvironmentRules& rules) {
    for (const std::string& entry : entries) {
        const size_t equals = entry.find('=');
        const std::string name = entry.substr(0, equals);
        if (!launch::is_variable_name(name))
            fail(ExitCode::kUsage, "--env: `{}` is not a variable name", name);
        if (name == launch::kTokenVariable)
            fail(ExitCode::kUsage, "--env: {} is dslaunch's own secret, which workers never get",
                 name);
        if (launch::is_rank_variable(name))
            fail(ExitCode::kUsage, "--env: {} cannot be set, since dslaunch sets it for each rank",
                 name);
        const auto value =
            equals == std::string::npos ? machine.variable(name) : entry.substr(equals + 1);
        if (!value)
            fail(ExitCode::kUsage, "--env {}: this variable is not set here; write --env {}=VALUE",
                 name, name);
        rules.set.emplace_back(name, *value);
    }
}

// Checks OMP_NUM_THREADS: OpenMP would ignore a value that is not a list of numbers, and choose a
// number itself.
void check_threads(const launch::EnvironmentRules& rules, const Machine& machine) {
    const std::string* chosen = launch::find_variable(rules.set, launch::kThreadsVariable);
    if (chosen != nullptr && chosen->find('$') != chosen->npos) return;  // the host expands it
    const std::string value = chosen != nullptr ? *chosen
                              : rules.inherit_all
                                  ? machine.variable(launch::kThreadsVariable).value_or("1")
                                  : "1";
    for (const std::string& level : split(value, ',')) {
        const auto threads = parse_int(trim(level));
        if (!threads || *threads < 1)
            fail(
                ExitCode::kUsage,
                "{}={}: `{}` is not a number of threads; set it to a number, or unset the variable",
                launch::kThreadsVariable, printable(value), printable(level));
    }
}

}  // namespace

launch::EnvironmentRules environment_of(const RunOptions& options, const Machine& machine,
                                        const launch::JobSpec& spec) {
    launch::EnvironmentRules rules = spec.environment;
    // Workers inherit the agent's whole environment if it is meant for them: an agent that srun
    // started has the environment of this process, and an agent that connects by itself has the
    // environment of its container.
    rules.inherit_all = spec.transport == launch::TransportKind::kLocal ||
                        spec.transport == launch::TransportKind::kSlurm ||
                        spec.transport == launch::TransportKind::kJoin;
    const std::string level = options.log.quiet ? "warn" : options.log.level;
    if (spec.target_kind == launch::TargetKind::kModel && level != "info") {
        rules.set.emplace_back(launch::kLogLevelVariable, level);
    }
    if (spec.transport != launch::TransportKind::kLocal)
        add_launcher_variables(machine, spec, rules);
    for (const std::string& path : options.env_files)
        add_env_file(resolved_path(path, machine.directory), rules);
    add_given(options.env, machine, rules);
    if (spec.target_kind == launch::TargetKind::kModel) check_threads(rules, machine);
    return rules;
}

}  // namespace dslaunch::launcher
