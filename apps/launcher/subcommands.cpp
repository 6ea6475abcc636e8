#include "launcher/subcommands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/help_page.h"
#include "launch/agent/agent_command.h"
#include "launch/transport/tree/relay.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/ran_elsewhere.h"
#include "launcher/options/parse_run.h"

namespace dslaunch::launcher {
namespace {

// Runs COMMAND with the words after its name.
template <int (*Command)(CommandWords)>
int own(CommandWords words) {
    return Command(words.subspan(1));
}

// Refuses a model or adapter in WORDS that was the output of a job and is not there any more.
void refuse_moved_outputs(CommandWords words) {
    const bool has_verb = words.front() == "model" || words.front() == "data";
    for (size_t i = 1; i < words.size(); ++i) {
        const bool is_named = words[i - 1] == "--model" || words[i - 1] == "--adapter";
        const bool is_place = i == 1 ? !has_verb : i == 2 && has_verb;
        if ((is_named || is_place) && !words[i].starts_with('-')) refuse_moved_output(words[i]);
        const std::string there = ran_elsewhere_text(words.subspan(i, 1));
        if ((is_named || is_place) && !there.empty())
            fail(ExitCode::kInput, "{}: no such file or folder{}", printable(words[i]), there);
    }
}

// Replaces this process by dsworker, which can read models. The role has the subcommand's name.
int worker_role(CommandWords words) {
    refuse_moved_outputs(words);
    become_worker(words);
}

// Runs the role as a job if WORDS choose ranks; otherwise becomes dsworker, as worker_role() does.
int shared_role(CommandWords words) {
    refuse_moved_outputs(words);
    if (chooses_ranks(words)) return run_role(words);
    become_worker(words);
}

std::vector<std::string> offered_names() {
    std::vector<std::string> offered;
    for (const Subcommand& row : subcommands()) {
        if (row.is_offered) offered.emplace_back(row.name);
    }
    return offered;
}

int run(CommandWords words) {
    const std::vector<std::string> offered = offered_names();
    const RunAs as = words.front() == "run"      ? RunAs::kRun
                     : words.front() == "verify" ? RunAs::kVerify
                                                 : RunAs::kUnnamed;
    const CommandWords arguments = words.subspan(as == RunAs::kUnnamed ? 0 : 1);
    try {
        return run_command(arguments, as, offered);
    } catch (const Error& error) {
        throw Error(error.code(), error.what() + ran_elsewhere_text(arguments));
    }
}

int relay(CommandWords words) {
    const bool same_machine = words.size() == 3 && words[2] == "--same-machine";
    if (words.size() < 2 || words[1] != "--stdio" || (words.size() > 2 && !same_machine)) {
        fail(ExitCode::kUsage,
             "usage: dslaunch relay --stdio (dslaunch starts it by itself on some hosts of a large "
             "job)");
    }
    return launch::run_relay(STDIN_FILENO, STDOUT_FILENO,
                             launch::LauncherLease::over_stdio(same_machine));
}

constexpr bool kDropsToken = true;
constexpr bool kKeepsToken = false;
constexpr bool kNotOffered = false;

// clang-format off
constexpr Subcommand kSubcommands[] = {
    {"run", "trains a model, or starts a script or program on all slots; the default", run},
    {"config", "checks a ds_config.json and prints what it means", own<config_command>},
    {"plan", "prints memory, segments and costs of a training job, without starting it", worker_role},
    {"verify", "trains a few steps and checks each against a single-process reference", run},
    {"tune", "finds the fastest config for a training by forecasts and short trials", own<tune_command>},
    {"model", "makes, converts and merges models, and shows what a model contains", worker_role},
    {"health", "measures links and collectives between hosts, and names slow or broken ones", own<run_health>, kDropsToken},
    {"io-bench", "measures how fast a disk reads and writes, and stores the best settings", own<io_bench_command>},
    {"ckpt", "lists, verifies, inspects, compares, exports and imports checkpoints", own<ckpt_command>},
    {"zero_to_fp32", "writes the weights of a DeepSpeed checkpoint as safetensors", own<zero_to_fp32_command>},
    {"pack", "puts a config and the names of data files into a model archive", own<pack_command>},
    {"generate", "generates text with a language model, on one rank or many", shared_role},
    {"serve", "serves a language model over HTTP with OpenAI's protocol", shared_role},
    {"data", "turns text and chats into rows of tokens, and shows them", worker_role},
    {"eval", "measures a language model's loss, perplexity or multiple-choice accuracy", shared_role},
    {"compress", "writes a model with weights of 8 to 2 bits, and says what it lost", worker_role},
    {"tokens", "turns a text file into a file of tokens, one for each byte", own<tokens_command>},
    {"hosts", "shows the state of all hosts; sets up ssh keys and known_hosts for all", own<hosts_command>, kDropsToken},
    {"exec", "runs a command on all hosts, and shows identical output once", own<exec_command>, kDropsToken},
    {"push", "sends dslaunch, its libraries, models and data to all hosts", own<push_command>, kDropsToken},
    {"bundle", "packs the installation and files into one archive", own<bundle_command>},
    {"ps", "lists running jobs (--all: also ended ones), or who uses which GPU", own<ps_command>},
    {"top", "shows what a running job does now: loss, speed, memory, ranks", own<top_command>},
    {"logs", "shows what the ranks of a job wrote", own<logs_command>},
    {"stop", "ends a job, or the processes that a dead job left on its hosts", own<stop_command>},
    {"completion", "prints a script that completes dslaunch's commands in bash, zsh or fish", own<completion_command>},
    {"man", "shows the man page of a command, or writes all pages", own<man_command>},
    {"links", "makes links by the names of DeepSpeed's programs (deepspeed, ds_report, ds_ssh, ...)", own<links_command>},
    {"report", "prints text for a bug report; --html: a page with the curves of runs", own<report_command>},
    // The agent keeps the token variable, because it joins the job with this token.
    {"agent", "serves one node of a job that waits for this node", own<launch::run_agent_command>, kKeepsToken, kNotOffered},
    {"relay", "", relay, kKeepsToken, kNotOffered},
    {"complete", "", own<complete_command>, kKeepsToken, kNotOffered},
};
// clang-format on

}  // namespace

std::span<const Subcommand> subcommands() {
    return kSubcommands;
}

const Subcommand* find_subcommand(std::string_view name) {
    const auto found =
        std::ranges::find_if(kSubcommands, [&](const Subcommand& row) { return row.name == name; });
    return found == std::end(kSubcommands) ? nullptr : &*found;
}

HelpPage subcommands_page() {
    HelpPage page{
        .does =
            "Trains and fine-tunes models on one machine or many, and starts any program there. No "
            "Python needed.\nTARGET is a Hugging Face folder as it was downloaded, a model "
            "exported from PyTorch (train.pt2), a TorchScript file (train.pt), a Python script or "
            "any program.\n`dslaunch help run` lists the options for training and for starting "
            "programs, `dslaunch help SUBCOMMAND` the options of a subcommand.",
        .examples = run_examples(),
        .docs = "docs/reference/cli.md, docs/help/exit-codes.md",
        .usage = {"dslaunch [run] [options] TARGET [arguments]", "dslaunch SUBCOMMAND [options]"},
        .groups = {{"subcommands", {}},
                   {"options", {{"-h, --help", "this text"}, {"--version", "print the version"}}}}};
    for (const Subcommand& row : kSubcommands)
        if (*row.help != '\0') page.groups[0].entries.push_back({row.name, row.help});
    return page;
}

}  // namespace dslaunch::launcher
