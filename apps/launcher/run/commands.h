// The subcommands of dslaunch, one function for each.
#pragma once

#include <span>
#include <string>

#include "base/text/help_page.h"

namespace dslaunch::launch {
struct JobSpec;
}

namespace dslaunch::launcher {

using CommandWords = std::span<const std::string>;

// The functions below get the words after the subcommand's name, print results on stdout, and the
// rest on stderr. Each returns the exit code, and throws Error: kUsage for wrong words, and the
// codes beside it. REQUIRES: called from the main thread, no other thread yet.
[[nodiscard]] int config_command(CommandWords arguments);    // returns 65 (kConfig) for problems
[[nodiscard]] int run_health(CommandWords arguments);        // as run_command()
[[nodiscard]] int io_bench_command(CommandWords arguments);  // kDisk, kSetup, kInterrupted
[[nodiscard]] int ckpt_command(CommandWords arguments);      // kInput, kCheckpoint, kDisk
[[nodiscard]] int zero_to_fp32_command(CommandWords arguments);  // the same
[[nodiscard]] int pack_command(CommandWords arguments);          // kInput, kConfig, kDisk
[[nodiscard]] int tokens_command(CommandWords arguments);        // kInput, kDisk
[[nodiscard]] int hosts_command(CommandWords arguments);
[[nodiscard]] int trust_command(CommandWords arguments);  // `hosts trust`
[[nodiscard]] int exec_command(CommandWords arguments);   // returns the highest code of all hosts
[[nodiscard]] int push_command(CommandWords arguments);
[[nodiscard]] int bundle_command(CommandWords arguments);
[[nodiscard]] int ps_command(CommandWords arguments);
[[nodiscard]] int logs_command(CommandWords arguments);
[[nodiscard]] int stop_command(CommandWords arguments);
[[nodiscard]] int report_command(CommandWords arguments);

// Returns the page that `hosts trust --help` prints, without the options.
[[nodiscard]] HelpPage trust_page();

// Prints the completion script of a shell, which offers SUBCOMMANDS first.
[[nodiscard]] int completion_command(CommandWords arguments, CommandWords subcommands);

enum class RunAs {
    kUnnamed,  // dslaunch TARGET
    kRun,      // dslaunch run TARGET
    kVerify,   // dslaunch verify MODEL: a few steps, each beside one rank that computes all alone
};

// Runs a job and returns its exit code. SUBCOMMANDS: the names to compare a mistyped one with.
[[nodiscard]] int run_command(CommandWords arguments, RunAs as, CommandWords subcommands);

// Runs a role of dsworker that needs no training (`generate`) on the ranks of a job. WORDS: see
// parse_role_options(). Result, errors and REQUIRES as run_command().
[[nodiscard]] int run_role(CommandWords words);

// Sends the files that a job needs to its hosts, before it starts: the required files, and for a
// .pt job the programs. Throws Error{kHosts} naming each host that did not get all files. REQUIRES:
// hosts over ssh.
void push_for_job(const launch::JobSpec& spec);

// Throws Error{kSetup} when the dsworker at PATH cannot be started.
void require_worker(const std::string& path);

// Replaces this process by `dsworker WORDS…`, the program beside this dslaunch; WORDS begin with
// the role. Never returns; throws Error{kSetup} if dsworker cannot be started.
[[noreturn]] void become_worker(CommandWords words);

}  // namespace dslaunch::launcher
