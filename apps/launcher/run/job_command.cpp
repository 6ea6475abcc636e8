#include "launcher/run/job_command.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine/plugin.h"
#include "base/text.h"
#include "launch/machine/elf_needs.h"
#include "launcher/run/training_job_checks.h"

namespace dslaunch::launcher {
namespace {

// Returns dsworker's --resume argument; a folder becomes an absolute path.
std::string resume_argument(const RunOptions& options, const Machine& machine) {
    if (options.resume.empty()) return "";
    const bool is_best = options.resume == "best";
    if (options.resume != "auto" && !is_best)
        return resolved_path(options.resume, machine.directory);
    if (options.output.empty() && options.no_output)
        fail(
            ExitCode::kUsage,
            "--resume continues from a checkpoint in --output, and --no-output keeps none: replace "
            "--no-output by --output DIR, the folder of the run to continue");
    if (options.output.empty())
        fail(ExitCode::kUsage,
             "--resume{} continues from the {} checkpoint in --output, but --output is not given; "
             "add --output DIR, or give the folder: --resume=DIR",
             is_best ? "=best" : " without a folder", is_best ? "best" : "newest");
    return is_best ? resolved_path(options.output, machine.directory) + "/best" : options.resume;
}

void write_training_options(const RunOptions& options, const Machine& machine,
                            const launch::JobSpec& spec, launch::PlanRequest& request) {
    const auto add = [&](const std::string& name, const std::string& value) {
        if (!value.empty()) request.command_tail.push_back(fmt::format("--{}={}", name, value));
    };
    add("config", options.config);
    for (const std::string& entry : options.set) {
        // Also passes the name of the option that set the key, so that messages of ranks can name
        // this option.
        const auto by = options.set_by.find(entry.substr(0, entry.find('=')));
        add("set", by == options.set_by.end() ? entry : fmt::format("{}:{}", by->second, entry));
    }
    for (const auto& entry : begun_of(options, spec.output_directory)) add("begun", entry);
    if (options.device_given && options.device != launch::DeviceRequest::kAuto) {
        add("set", fmt::format("dslaunch.device=\"{}\"",
                               options.device == launch::DeviceRequest::kCpu ? "cpu" : "cuda"));
    }
    add("output", spec.output_directory);
    add("expect-sha256", options.expect_sha256);
    add("resume", resume_argument(options, machine));
    if (options.trust_model) request.command_tail.emplace_back("--trust-model");
    if (options.new_data) request.command_tail.emplace_back("--new-data");
    if (options.verifies) request.command_tail.emplace_back("--verify");
    add("scratch",
        options.scratch.empty() ? "" : resolved_path(options.scratch, machine.directory));
    if (options.timeout_s) add("timeout", fmt::format("{}", *options.timeout_s));
}

// Adds the script to the required files if this machine has it, so that a host where it differs or
// is missing is found before the start. If this machine lacks the script, the hosts may still have
// it.
void add_script(const RunOptions& options, launch::JobSpec& spec) {
    if (options.module) return;
    const std::string path = resolved_path(options.target, spec.working_directory);
    if (access(path.c_str(), F_OK) == 0) spec.required_files.push_back(path);
}

// Adds the libraries to the required FILES, because LibTorch is as much a part of the program as
// dsworker itself.
void add_libraries(const RunOptions& options, const Machine& machine,
                   std::vector<std::string>& files) {
    const std::string plugin = plugin_of(machine.binary_directory, "libdsl_cuda.so");
    std::vector<std::string> programs = {files.front()};
    const bool cuda = options.device != launch::DeviceRequest::kCpu;
    if (cuda && access(plugin.c_str(), F_OK) == 0) programs.push_back(plugin);
    for (const std::string& program : programs) {
        if (access(program.c_str(), R_OK) != 0) continue;  // reported at the start
        if (program == plugin) files.push_back(plugin);
        for (const std::string& library : launch::own_libraries(program)) {
            if (std::find(files.begin(), files.end(), library) == files.end()) {
                files.push_back(library);
            }
        }
    }
}

}  // namespace

void write_command(const RunOptions& options, const Machine& machine, launch::JobSpec& spec,
                   launch::PlanRequest& request) {
    const launch::TargetKind kind = target_kind_of(options);
    spec.target_kind = kind;
    spec.target = options.target;
    if (kind == launch::TargetKind::kPython) {
        const std::string python = machine.python();
        request.command_head = {python, "-u"};
        if (python.starts_with('/')) spec.interpreter = python;
        if (options.module) request.command_head.emplace_back("-m");
        add_script(options, spec);
    }
    const std::string worker = machine.binary_directory + "/dsworker";
    if (kind == launch::TargetKind::kModel)
        request.command_head = {worker, options.role.empty() ? "train" : options.role};
    request.command_head.push_back(options.target);
    request.append_local_rank =
        (kind == launch::TargetKind::kPython || options.no_python) && !options.no_local_rank;
    request.command_tail = options.arguments;
    if (kind != launch::TargetKind::kModel) return;
    if (options.role.empty()) write_training_options(options, machine, spec, request);
    spec.required_files = {worker, resolved_path(options.target, spec.working_directory)};
    if (spec.transport != launch::TransportKind::kLocal && options.check_hosts)
        add_libraries(options, machine, spec.required_files);
    if (!options.config.empty()) {
        spec.required_files.push_back(resolved_path(options.config, spec.working_directory));
    }
}

}  // namespace dslaunch::launcher
