// The subcommands of dslaunch, one function each.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/text/help_page.h"

namespace dslaunch::launch {
struct JobSpec;
}

namespace dslaunch::launcher {

struct RunOptions;

// The words of a command line after the name of the command.
using CommandWords = std::span<const std::string>;

// The functions below get the words that follow the subcommand's name. They print results on stdout
// and everything else on stderr. Each returns the exit code. Each function throws Error{kUsage} for
// wrong words, and Error with the codes in its trailing comment. REQUIRES: called from the main
// thread, before any other thread exists.
[[nodiscard]] int config_command(CommandWords arguments);    // returns 65 (kConfig) for problems
[[nodiscard]] int run_health(CommandWords arguments);        // the same codes as run_command()
[[nodiscard]] int io_bench_command(CommandWords arguments);  // kDisk, kSetup, kInterrupted
[[nodiscard]] int ckpt_command(CommandWords arguments);      // kInput, kCheckpoint, kDisk
[[nodiscard]] int zero_to_fp32_command(CommandWords arguments);  // the same codes
[[nodiscard]] int pack_command(CommandWords arguments);          // kInput, kConfig, kDisk
[[nodiscard]] int tokens_command(CommandWords arguments);        // kInput, kDisk
[[nodiscard]] int hosts_command(CommandWords arguments);
[[nodiscard]] int trust_command(CommandWords arguments);  // `hosts trust`
[[nodiscard]] int exec_command(CommandWords arguments);   // returns the highest code of all hosts
[[nodiscard]] int push_command(CommandWords arguments);
[[nodiscard]] int bundle_command(CommandWords arguments);
[[nodiscard]] int tune_command(CommandWords arguments);  // the same codes as run_command()
[[nodiscard]] int ps_command(CommandWords arguments);
[[nodiscard]] int logs_command(CommandWords arguments);
[[nodiscard]] int stop_command(CommandWords arguments);
[[nodiscard]] int report_command(CommandWords arguments);  // kInput, kDisk
[[nodiscard]] int top_command(CommandWords arguments);
[[nodiscard]] int man_command(CommandWords arguments);    // kSetup, kDisk
[[nodiscard]] int links_command(CommandWords arguments);  // kInput, kDisk
[[nodiscard]] int completion_command(CommandWords arguments);
[[nodiscard]] int complete_command(CommandWords arguments);  // kSetup; for completion's scripts

// Returns the page that `hosts trust --help` prints, without the options.
[[nodiscard]] HelpPage trust_page();

// The form of the command line that starts a job.
enum class RunAs {
    kUnnamed,  // dslaunch TARGET
    kRun,      // dslaunch run TARGET
    kVerify,   // `dslaunch verify MODEL`: compares a few steps with one rank
};

// Runs a job and returns its exit code. A mistyped name is compared with SUBCOMMANDS.
[[nodiscard]] int run_command(CommandWords arguments, RunAs as, CommandWords subcommands);

// Runs a role of dsworker that does not train (such as `generate`) on the ranks of a job. WORDS are
// described at parse_role_options(). The result, errors and REQUIRES are the same as for
// run_command().
[[nodiscard]] int run_role(CommandWords words);

// Runs the training job of OPTIONS without a record, and passes its lines of metrics to METRICS.
// The result, errors and REQUIRES are the same as for run_command(). REQUIRES: OPTIONS are settled.
[[nodiscard]] int run_trial(const RunOptions& options,
                            std::function<void(std::string_view line)> metrics);

// Sends the files that a job needs to its hosts before it starts: the required files, and for a
// model also dslaunch's programs and libraries. Throws Error{kHosts}, naming each host that did not
// get all files. An elastic job only gets a warning if enough hosts are left. REQUIRES: the hosts
// are reached over ssh.
void push_for_job(const launch::JobSpec& spec);

// Throws Error{kSetup} if the dsworker at PATH cannot be started.
void require_worker(const std::string& path);

// Replaces this process by `dsworker WORDS…`, the program in the same folder as this dslaunch.
// WORDS begin with the role. Never returns. Throws Error{kSetup} if dsworker cannot be started.
[[noreturn]] void become_worker(CommandWords words);

}  // namespace dslaunch::launcher
