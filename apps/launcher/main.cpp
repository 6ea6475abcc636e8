// dslaunch: chooses the subcommand, turns errors into one message and an exit code.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launch/agent/agent_command.h"
#include "launch/plan/join_token.h"
#include "launch/supervise/job.h"
#include "launch/transport/tree/relay.h"
#include "launcher/ckpt/ckpt_command.h"
#include "launcher/hosts/bundle_command.h"
#include "launcher/hosts/exec_command.h"
#include "launcher/hosts/health_command.h"
#include "launcher/hosts/hosts_command.h"
#include "launcher/hosts/push_command.h"
#include "launcher/inputs/config_command.h"
#include "launcher/inputs/pack_command.h"
#include "launcher/inputs/tokens_command.h"
#include "launcher/io/io_bench_command.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/logs_command.h"
#include "launcher/jobs/ps_command.h"
#include "launcher/jobs/report_command.h"
#include "launcher/jobs/stop_command.h"
#include "launcher/run/build_job.h"
#include "launcher/run/dry_run.h"
#include "launcher/run/host_source.h"
#include "launcher/run/mpi_copies.h"
#include "launcher/run/run_options.h"
#include "launcher/run/training_job.h"

namespace dslaunch::launcher {
namespace {

using Arguments = std::vector<std::string>;

constexpr const char* kHelp =
    "dslaunch trains TorchScript models on many hosts, and starts any program on them. No Python "
    "needed.\n"
    "\n"
    "usage: dslaunch [run] [options] TARGET [arguments]     train TARGET.pt, or run a script or "
    "program\n"
    "       dslaunch SUBCOMMAND [options]\n"
    "\n"
    "  run        start one worker per slot (the default; `dslaunch run --help` lists all "
    "options)\n"
    "  config     check a ds_config.json and print what it means\n"
    "  plan       print segments, instructions, memory and bytes moved, without starting anything\n"
    "  model      write a new model archive\n"
    "  health     measure links and collectives between the hosts, name the slow or broken one\n"
    "  io-bench   measure how fast a disk reads and writes, beside fio, and remember the best way\n"
    "  ckpt       list, verify, inspect, compare, export and import checkpoints\n"
    "  zero_to_fp32  write the weights of a DeepSpeed checkpoint as safetensors\n"
    "  pack       put config and data reference into a model archive\n"
    "  generate   let a trained model write text\n"
    "  tokens     turn a text file into a token file\n"
    "  hosts      check: what state all hosts are in; trust: keys and known_hosts for all\n"
    "  exec       run a command on all hosts, equal output shown once\n"
    "  push       send dslaunch, its libraries, models and data to all hosts\n"
    "  bundle     write the installation and files into one archive\n"
    "  ps         list the running jobs, `ps --all` also those that ended\n"
    "  logs       show what the ranks of a job wrote\n"
    "  stop       end a job, and what a dead one has left on its hosts\n"
    "  report     print what to paste into a bug report, secrets hidden\n"
    "  agent      serve one node of a job that waits for it (`dslaunch agent --help`); dslaunch\n"
    "             itself starts one on each host\n"
    "\n"
    "examples:\n"
    "  dslaunch train.pt --data king_james.bin --context 64 --steps 100 --output run1\n"
    "  dslaunch --hostfile hostfile train.pt --deepspeed_config ds_config.json\n"
    "  dslaunch --hostfile hostfile --include node1@node2:0,2 train.py --epochs 3\n"
    "  dslaunch --hostfile hostfile --dry-run --json train.pt\n"
    "\n"
    "  --help, --version\n";

bool is_in_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
        if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    }
    return false;
}

// `dslaunch genrate m.pt` means no program of that name.
void refuse_mistyped_subcommand(const launch::JobSpec& spec) {
    const std::string& target = spec.target;
    const bool here =
        spec.transport == launch::TransportKind::kLocal && spec.environment.set.empty();
    if (!here || spec.target_kind != launch::TargetKind::kProgram ||
        target.find('/') != target.npos || is_in_path(target)) {
        return;
    }
    static const std::vector<std::string> kSubcommands = {
        "run",   "config", "plan",     "model",  "pack",        "generate", "tokens",
        "hosts", "exec",   "push",     "bundle", "health",      "ps",       "logs",
        "stop",  "report", "io-bench", "ckpt",   "zero_to_fp32"};
    const auto guess = nearest(target, kSubcommands);
    if (!guess) return;
    fail(ExitCode::kUsage,
         "no program `{}` is in PATH; did you mean the subcommand `{}`? A program that is not in "
         "PATH needs its path: ./{}",
         printable(target), *guess, printable(target));
}

// A job whose agents come by themselves is known to them by its token.
void give_token(const RunOptions& options, const std::string& variable, launch::JobSpec& spec) {
    if (spec.transport != launch::TransportKind::kJoin) return;
    spec.token = launch::choose_token(variable, options.token_file);
    if (spec.token.empty()) {
        fail(ExitCode::kUsage, "agents that join over a network are known by a token; {}",
             launch::kTokenAdvice);
    }
}

// `--no_ssh` on a node that is not the first.
int join_by_hand(const RunOptions& options, const std::string& variable,
                 launch::JoinRequest request) {
    launch::release_end_signals();
    request.token = launch::choose_token(variable, options.token_file);
    return launch::run_joining_agent(std::move(request));
}

int run(const Arguments& arguments) {
    launch::hold_end_signals();
    const std::string token = launch::take_token_variable();  // no worker inherits it
    const RunOptions options = parse_run_options(arguments);
    if (options.help) {
        fmt::print("{}", run_options_help());
        return 0;
    }
    if (options.version) {
        fmt::print("dslaunch {}\n", DSL_VERSION);
        return 0;
    }
    set_log_level(options.log.quiet ? LogLevel::kWarn : parse_log_level(options.log.level));
    Machine machine = Machine::this_one();
    std::optional<MpiCopies> copies;
    if (MpiCopies::is_one(options, machine)) {
        MpiCopies::check(options);
        copies.emplace(machine);
        if (!copies->launches()) {
            launch::release_end_signals();
            return copies->serve();
        }
        machine = Machine::this_one();
        machine.joining = copies->joining();
    }
    if (is_other_copy(options, machine)) {
        log_debug("launch", "process 0 of this Slurm step launches the job; this one ends");
        return 0;
    }
    if (auto request = agent_by_hand(options); request && !options.dry_run) {
        return join_by_hand(options, token, *std::move(request));
    }
    BuiltJob job = build_job(options, machine);
    if (options.dry_run) {
        print_notes(job, options);
        const auto places = places_here(job.spec);
        fmt::print("{}",
                   options.json ? dry_run_json(job.spec, places) : dry_run_text(job.spec, places));
        return 0;
    }
    if (copies) {
        job.spec.token = copies->token();
    } else {
        give_token(options, token, job.spec);
    }
    refuse_mistyped_subcommand(job.spec);
    if (job.spec.target_kind == launch::TargetKind::kTorchScript) {
        require_worker(job.spec.required_files.front());
        look_into_training_job(options, job.spec);
    }
    print_notes(job, options);  // after all that may refuse the command line
    if (options.push && job.spec.transport != launch::TransportKind::kLocal) push_for_job(job.spec);
    const int code = launch::run_job(job.spec);
    if (copies && code == 0) copies->finish();
    remove_old_jobs(job.spec.state_directory);
    return code;
}

// Becomes `dsworker ROLE arguments…`, which reads models; never returns.
[[noreturn]] void become_worker(const Arguments& arguments) {
    const std::string worker = Machine::this_one().binary_directory + "/dsworker";
    require_worker(worker);
    std::string own_name = "dslaunch";  // in its messages: nobody has called a dsworker
    std::vector<char*> words = {own_name.data()};
    for (const std::string& argument : arguments)
        words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    execv(worker.c_str(), words.data());
    fail(ExitCode::kSetup, "cannot start {}: {}", worker, errno_text(errno));
}

// Those that start no job.
int subcommand(const Arguments& arguments) {
    CLI::App app("", "dslaunch");
    int exit_code = 0;
    add_config_command(app, exit_code);
    add_pack_command(app);
    add_tokens_command(app);
    add_io_bench_command(app);
    add_ps_command(app, exit_code);
    add_logs_command(app, exit_code);
    add_stop_command(app, exit_code);
    add_report_command(app, exit_code);
    add_ckpt_command(app, exit_code, become_worker);
    add_zero_to_fp32_command(app);
    return parse_command_line(app, arguments) ? exit_code : 0;
}

int relay(const Arguments& arguments) {
    if (arguments.size() != 2 || arguments[1] != "--stdio") {
        fail(ExitCode::kUsage,
             "usage: dslaunch relay --stdio (dslaunch itself starts it on some of many hosts)");
    }
    return launch::run_relay(STDIN_FILENO, STDOUT_FILENO);
}

int dispatch(int argc, char** argv) {
    Arguments arguments(argv + 1, argv + argc);
    // Under that name it is called as DeepSpeed's script.
    const std::string_view own_path = argv[0];
    if (own_path.substr(own_path.find_last_of('/') + 1) == "zero_to_fp32.py")
        arguments.insert(arguments.begin(), "zero_to_fp32");
    if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
        arguments[0] == "help") {
        fmt::print(arguments.empty() ? stderr : stdout, "{}", kHelp);
        return arguments.empty() ? static_cast<int>(ExitCode::kUsage) : 0;
    }
    const std::string& command = arguments[0];
    for (const char* role : {"plan", "model", "generate"}) {
        if (command == role) become_worker(arguments);
    }
    for (const char* name : {"config", "io-bench", "pack", "tokens", "ps", "logs", "stop", "report",
                             "ckpt", "zero_to_fp32"}) {
        if (command == name) return subcommand(arguments);
    }
    const std::span<const std::string> rest = std::span(arguments).subspan(1);
    for (const char* name : {"exec", "health", "hosts", "push"}) {
        // Neither ssh nor a command on a host inherits it.
        if (command == name) static_cast<void>(launch::take_token_variable());
    }
    if (command == "agent") return launch::run_agent_command(rest);
    if (command == "relay") return relay(arguments);
    if (command == "exec") return exec_command(rest);
    if (command == "health") return run_health(rest);
    if (command == "hosts") return hosts_command(rest);
    if (command == "push") return push_command(rest);
    if (command == "bundle") return bundle_command(rest);
    if (command == "run") arguments.erase(arguments.begin());
    return run(arguments);
}

}  // namespace
}  // namespace dslaunch::launcher

int main(int argc, char** argv) {
    try {
        const int code = dslaunch::launcher::dispatch(argc, argv);
        // Results that nobody got are no success.
        if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());
        return code;
    } catch (const dslaunch::Error& error) {
        // It may quote names and files that somebody else chose.
        fmt::print(stderr, "dslaunch: error: {}\n", dslaunch::printable_lines(error.what(), 0));
        return static_cast<int>(error.code());
    } catch (const std::system_error& error) {
        // Whoever read our output went away: as a program that SIGPIPE ends.
        if (error.code() == std::errc::broken_pipe) return 128 + SIGPIPE;
        fmt::print(stderr, "dslaunch: error: the output cannot be written: {}\n", error.what());
        return static_cast<int>(dslaunch::ExitCode::kDisk);
    } catch (const std::exception& error) {
        fmt::print(stderr, "dslaunch: internal error: {}\n", error.what());
        return static_cast<int>(dslaunch::ExitCode::kInternal);
    }
}
