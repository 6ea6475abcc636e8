#include "launcher/options/option_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "base/foreign/foreign_names.h"
#include "base/text.h"
#include "base/text/byte_size.h"
#include "base/text/command_line.h"
#include "base/text/json.h"
#include "base/text/option_name.h"
#include "base/text/words.h"
#include "config/resolve/option_overrides.h"
#include "launch/machine/machine_topology.h"
#include "launch/transport/join/join_endpoint.h"

namespace dslaunch::launcher {
namespace {

int64_t number(const std::string& value, int64_t least, int64_t most) {
    const auto parsed = parse_int(value);
    if (!parsed || *parsed < least || *parsed > most) {
        const std::optional<double> other = parsed ? std::nullopt : parse_double(value);
        const bool is_fraction = other && value.find('.') != value.npos;
        const bool is_share = other && *other > 0 && *other < 1;
        fail(ExitCode::kUsage, "`{}` is not a {}number from {} {}{}", printable(value),
             is_fraction ? "whole " : "", least,
             most == std::numeric_limits<int64_t>::max() ? "upwards" : fmt::format("to {}", most),
             is_share ? "; a fraction of the total is not accepted"
             : parsed ? ""
                      : plain_advice(value, least, most) + foreign_number_advice(value));
    }
    return *parsed;
}

[[noreturn]] void fail_seconds(const std::string& value, std::string_view range) {
    fail(ExitCode::kUsage, "`{}` is not a number of seconds from {}{}", printable(value), range,
         seconds_advice(value));
}

double seconds(const std::string& value, double least, double most, std::string_view range) {
    const auto parsed = parse_double(value);
    if (!parsed || !(*parsed >= least && *parsed <= most)) fail_seconds(value, range);
    return *parsed;
}

// Sets SETTING to VALUE. Throws Error{kUsage} if SETTING has a different value already, from an
// option with the same meaning or from an earlier use of the same option.
template <typename Setting, typename Value>
void agree(Setting& setting, const std::type_identity_t<Setting>& unset, const Value& value,
           std::string_view other) {
    if (setting != unset && setting != value) {
        fail(ExitCode::kUsage,
             "contradicts --{}, which has the same meaning; give only one of them", other);
    }
    setting = value;
}

// Returns the number in VALUE. Returns nullopt for "all" and for deepspeed's -1, which means "not
// given".
std::optional<int> count_or_all(const std::string& value) {
    if (value == "-1" || value == "all") return std::nullopt;
    return static_cast<int>(number(value, 1, launch::kHostsMax));
}

int port(const std::string& value) {
    return static_cast<int>(number(value, 1, 65'535));
}

void set_number(RunOptions& o, const char* key, const std::string& value, int64_t least) {
    o.set.push_back(
        fmt::format("{}={}", key, number(value, least, std::numeric_limits<int64_t>::max())));
}

// llama.cpp's and vLLM's -1 means "random".
void set_seed(RunOptions& o, const std::string& value) {
    if (value == "-1")
        fail(
            ExitCode::kUsage,
            "`-1` is not a number from 0 upwards; for the default, 1234, leave the option out; for "
            "another seed each time, write $RANDOM");
    set_number(o, "dslaunch.seed", value, 0);
}

// Trainer's -1 means "not given".
void set_steps(RunOptions& o, const std::string& value) {
    if (value == "-1")
        fail(ExitCode::kUsage,
             "`-1` is not a number of steps: leave it out for one pass over the "
             "data, or give --epochs N");
    set_number(o, "dslaunch.steps", value, 1);
}

// Sets KEY to the number VALUE. If VALUE is 0, sets KEY to null, as if it had not been given.
void set_number_or_none(RunOptions& o, const char* key, const std::string& value) {
    constexpr std::array<std::string_view, 5> kNever = {"no", "never", "none", "off", "-1"};
    const std::string word = lower(value);
    if (std::ranges::find(kNever, word) != kNever.end())
        fail(ExitCode::kUsage,
             "`{}` is not a number from 0 upwards; to turn this option off, give 0",
             printable(value));
    if (word.starts_with("epoch") || word.starts_with("step"))
        fail(ExitCode::kUsage,
             "`{}` is not a number: give a number of steps; the steps of an epoch are the number "
             "of samples divided by train_batch_size",
             printable(value));
    const int64_t chosen = number(value, 0, std::numeric_limits<int64_t>::max());
    o.set.push_back(fmt::format("{}={}", key, chosen == 0 ? "null" : std::to_string(chosen)));
}

// Sets the checkpoint to resume from. `latest` is DeepSpeed's word for the newest checkpoint;
// `true` is the word that transformers' Trainer uses.
void set_resume(RunOptions& o, const std::string& value) {
    // `best` is passed on: the ranks find the best checkpoint.
    constexpr std::array<std::string_view, 4> kNewest = {"", "latest", "last", "true"};
    const bool is_newest = std::ranges::find(kNewest, lower(value)) != kNewest.end();
    o.resume = is_newest ? "auto" : value;
}

void set_positive(RunOptions& o, const char* key, const std::string& value) {
    const auto parsed = parse_double(value);
    if (!parsed || !std::isfinite(*parsed) || *parsed <= 0)
        fail(ExitCode::kUsage, "`{}` is not a number above 0{}", printable(value),
             foreign_number_advice(value));
    o.set.push_back(fmt::format("{}={}", key, value));
}

void set_text(RunOptions& o, const char* key, const std::string& value) {
    o.set.push_back(fmt::format("{}={}", key, json_quote(value)));
}

void set_output(RunOptions& o, const std::string& value) {
    if (value == "-")
        fail(ExitCode::kUsage,
             "a folder is expected, not stdout; for a folder with the name `-`, write ./-");
    o.output = value;
}

void set_time_limit(RunOptions& o, const std::string& value) {
    if (!seconds_advice(value).empty()) fail_seconds(value, "1 on");
    set_number(o, "dslaunch.save.time_limit", value, 1);
}

// Refuses VALUE of --set, which has no key or no `=`.
[[noreturn]] void fail_setting(const std::string& value) {
    for (const char* ending : {".json", ".hjson", ".yaml", ".yml"})
        if (value.ends_with(ending))
            fail(ExitCode::kUsage, "`{}` is not KEY=VALUE; to use this config: --config {}",
                 printable(value), shell_word(value));
    if (value.starts_with('{'))
        fail(ExitCode::kUsage,
             "`{}` is not KEY=VALUE: give each value with its own --set, such as --set "
             "zero_optimization.stage=2, or write the JSON into a file for --config",
             printable(value));
    if (const size_t colon = value.find(':'); colon != std::string::npos && colon > 0)
        fail(ExitCode::kUsage,
             "`{}` is not KEY=VALUE; write `=` in place of the first colon: --set {}={}",
             printable(value), printable(value.substr(0, colon)),
             printable(trim(std::string_view(value).substr(colon + 1))));
    fail(ExitCode::kUsage,
         "`{0}` is not KEY=VALUE, such as train_batch_size=8 (in one word, without blanks around "
         "`=`)",
         printable(value));
}

void set_lora(RunOptions& o, const std::string& value) {
    for (std::string& set : config::lora_overrides(value)) o.set.push_back(std::move(set));
}

void set_device(RunOptions& o, const std::string& value) {
    if (value != "auto" && value != "cpu" && value != "cuda") {
        const size_t colon = value.find(':');
        const bool is_cuda = value.starts_with("cuda:") && parse_int(value.substr(colon + 1));
        fail(ExitCode::kUsage, "`{}` is none of auto, cpu, cuda{}", printable(value),
             is_cuda ? fmt::format(": use --device cuda, and choose the GPU by setting "
                                   "CUDA_VISIBLE_DEVICES={} before dslaunch",
                                   value.substr(colon + 1))
             : value == "gpu" || value == "nvidia" ? ": use --device cuda"
                                                   : "");
    }
    o.device = value == "cpu"    ? launch::DeviceRequest::kCpu
               : value == "cuda" ? launch::DeviceRequest::kCuda
                                 : launch::DeviceRequest::kAuto;
    o.device_given = true;
}

void set_launcher(RunOptions& o, const std::string& value) {
    static constexpr std::array<std::string_view, 3> kLater = {"mpich", "impi", "mvapich"};
    static constexpr std::array<std::string_view, 7> kKnown = {
        "ssh", "openssh", "pdsh", "openmpi", "slurm", "join", "local"};
    const std::string name = lower(value);
    if (std::find(kLater.begin(), kLater.end(), name) != kLater.end()) {
        fail(ExitCode::kUsage, "launcher `{}` is not supported; use ssh, openssh or openmpi", name);
    }
    if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
        fail(ExitCode::kUsage, "`{}` is none of ssh, openssh, pdsh, openmpi, slurm, join, local{}",
             printable(value), foreign_launcher(name));
    }
    o.launcher = name;
}

void set_launcher_args(RunOptions& o, const std::string& value) {
    const auto words = split_words(value, Comments::kAreWords);
    if (!words) fail(ExitCode::kUsage, "a quote is not closed in `{}`", printable(value));
    o.launcher_args.insert(o.launcher_args.end(), words->begin(), words->end());
}

void set_listen(RunOptions& o, const std::string& value) {
    o.listen = launch::parse_join_endpoint(value).text();
}

void set_connect_timeout(RunOptions& o, const std::string& value) {
    const double time = seconds(value, 0.1, 604'800.0, "0.1 to 604800");
    o.connect_timeout = std::chrono::milliseconds(static_cast<int64_t>(time * 1000.0));
}

void set_node_rank(RunOptions& o, const std::string& value) {
    o.no_local_rank = true;
    const int64_t rank = number(value, -1, launch::kHostsMax - 1);
    if (rank >= 0) o.node_rank = static_cast<int>(rank);
}

void set_log_level(RunOptions& o, const std::string& value) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLevels = {
        {{"debug", "debug"},
         {"info", "info"},
         {"warn", "warn"},
         {"warning", "warn"},
         {"error", "error"},
         {"critical", "error"}}};
    for (const auto& [word, level] : kLevels) {
        if (value != word) continue;
        o.log.level = level;
        return;
    }
    fail(ExitCode::kUsage, "`{}` is none of debug, info, warning, error, critical",
         printable(value));
}

void set_sha256(RunOptions& o, const std::string& value) {
    o.expect_sha256 = lower(value);
    if (!is_hex_text(o.expect_sha256, 64)) {
        fail(ExitCode::kUsage,
             "a SHA-256 has 64 hexadecimal digits (0-9, a-f), unlike this value of {} characters",
             value.size());
    }
}

void set_bring_weights(RunOptions& o, const std::string& value) {
    o.bring_bytes_max = parse_byte_size(value);
    if (!o.bring_bytes_max)
        fail(ExitCode::kUsage, "`{}` is not a size in bytes, such as 500M, 2G or 0",
             printable(value));
}

void set_fanout(RunOptions& o, const std::string& value) {
    const auto hosts = parse_int(value);
    if (!hosts || *hosts < 0 || *hosts == 1 || *hosts > launch::kHostsMax) {
        fail(ExitCode::kUsage, "`{}` is neither 0 (no tree) nor a number of hosts from 2 to {}",
             printable(value), launch::kHostsMax);
    }
    o.fanout = static_cast<size_t>(*hosts);
}

void set_grace(RunOptions& o, const std::string& value) {
    o.grace_s = seconds(value, 0.0, 86'400.0, "0 to 86400");
}

void set_timeout(RunOptions& o, const std::string& value) {
    o.timeout_s = seconds(value, 0.1, 86'400.0, "0.1 to 86400");
}

void set_nproc(RunOptions& o, const std::string& value) {
    o.no_local_rank = true;
    if (value == "auto") return;
    if (value == "gpu") {
        o.gpu_each = true;
        return set_device(o, "cuda");
    }
    if (value == "cpu")
        fail(ExitCode::kUsage,
             "`cpu` is not supported; give the number of workers, and --device cpu");
    agree(o.filter.num_gpus, {}, static_cast<int>(number(value, 1, launch::kSlotsMax)), "num_gpus");
}

void set_nnodes(RunOptions& o, const std::string& value) {
    o.no_local_rank = true;
    const std::vector<std::string> ends = split(value, ':');
    if (ends.size() > 2)
        fail(ExitCode::kUsage, "`{}` is neither N nor MIN:MAX, such as 2:8", printable(value));
    const launch::NodeCounts range{static_cast<int>(number(ends.front(), 1, launch::kHostsMax)),
                                   static_cast<int>(number(ends.back(), 1, launch::kHostsMax))};
    if (range.min > range.max)
        fail(ExitCode::kUsage, "`{}`: the minimum is greater than the maximum", printable(value));
    if (ends.size() == 1) {
        agree(o.filter.num_nodes, {}, range.min, "num_nodes");
    } else {
        o.nodes = range;
    }
}

void set_straggler_interval(RunOptions& o, const std::string& value) {
    o.log.straggler_interval_steps = static_cast<int>(number(value, 0, 1'000'000'000));
}

void set_max_restarts(RunOptions& o, const std::string& value) {
    o.no_local_rank = true;
    o.max_restarts = static_cast<int>(number(value, 0, 1'000'000));
}

void set_endpoint(RunOptions& o, const std::string& value) {
    o.no_local_rank = true;
    const size_t colon = value.rfind(':');
    const bool has_port = colon != std::string::npos && value.find(']', colon) == std::string::npos;
    const std::string host = value.substr(0, has_port ? colon : std::string::npos);
    if (!launch::is_host_name(host))
        fail(ExitCode::kUsage, "`{}` is not HOST or HOST:PORT", printable(value));
    agree(o.master_address, {}, host, "master_addr");
    if (has_port && value.substr(colon + 1) != "0")
        agree(o.master_port, 0, port(value.substr(colon + 1)), "master_port");
}

void set_job_id(RunOptions& o, const std::string& value) {
    o.no_local_rank = true;
    const bool plain = !value.empty() && value.size() <= 128 &&
                       std::all_of(value.begin(), value.end(), [](char c) {
                           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ||
                                  c == '_' || c == '-';
                       });
    if (!plain)
        fail(ExitCode::kUsage,
             "a job name may contain only letters, digits, `.`, `_` and `-`, and at most 128 "
             "characters");
    o.job_id = value;
}

void set_master_address(RunOptions& o, const std::string& value) {
    if (!launch::is_host_name(value))
        fail(ExitCode::kUsage, "`{}` is neither a host name nor an address", printable(value));
    agree(o.master_address, {}, value, "rdzv_endpoint");
}

void set_count(std::optional<int>& slot, const std::string& value, std::string_view other) {
    if (const auto count = count_or_all(value)) agree(slot, {}, *count, other);
}

using BindName = std::pair<std::string_view, launch::BindMode>;
constexpr std::array<BindName, 3> kBindNames = {{{"none", launch::BindMode::kNone},
                                                 {"core", launch::BindMode::kCore},
                                                 {"numa", launch::BindMode::kNuma}}};
constexpr std::array<BindName, 4> kNumaBindingNames = {
    {{"node", launch::BindMode::kNuma},
     {"socket", launch::BindMode::kSocket},
     {"exclusive", launch::BindMode::kExclusive},
     {"core-complex", launch::BindMode::kCoreComplex}}};

void set_binding(RunOptions& o, const std::string& value, std::span<const BindName> names) {
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const BindName& name) { return name.first == value; });
    if (found == names.end()) {
        std::vector<std::string> known;
        for (const BindName& name : names) known.emplace_back(name.first);
        fail(ExitCode::kUsage, "`{}` is none of {}", printable(value), join(known, ", "));
    }
    if (o.binding.mode != launch::BindMode::kAuto && o.binding.mode != found->second) {
        fail(ExitCode::kUsage,
             "`{}` contradicts another option that binds ranks ({}); give only one", value,
             launch::bind_mode_name(o.binding.mode));
    }
    o.binding.mode = found->second;
}

void set_core_list(RunOptions& o, const std::string& value) {
    const auto list = launch::parse_processor_list(value);
    if (!list) {
        fail(ExitCode::kUsage, "`{}` is not a list of processors such as 0-3,8", printable(value));
    }
    o.binding.core_list = launch::processor_list_text(*list);
}

// The titles of the option groups, in the order of the enum.
constexpr std::string_view kTitles[] = {
    "training a model",
    "output",
    "hosts",
    "target",
    "environment",
    "accepted as in torchrun (then no --local_rank=N is passed)",
    "known but refused",
};

using O = RunOptions;
using V = const std::string;

// clang-format off
constexpr OptionRow kRows[] = {
    {"data", Group::kTraining, "FILE", "training data: rows that `dslaunch data prepare` writes (.safetensors), a file of tokens, or .npy", [](O& o, V& v) { set_text(o, "dslaunch.data.train", v); }},
    {"eval-data", Group::kTraining, "FILE", "held-out data, used for evaluation and not for training", [](O& o, V& v) { set_text(o, "dslaunch.data.eval", v); }},
    {"epochs,num-train-epochs", Group::kTraining, "N", "passes over the training data, instead of --steps; default: one", [](O& o, V& v) { set_positive(o, "dslaunch.epochs", v); }},
    {"steps,max-steps", Group::kTraining, "N", "optimizer steps to train, instead of --epochs", set_steps},
    {"lr,learning-rate", Group::kTraining, "RATE", "learning rate of the optimizer", [](O& o, V& v) { set_positive(o, "optimizer.params.lr", v); }},
    {"warmup-steps", Group::kTraining, "N", "warm-up steps of the scheduler", [](O& o, V& v) { set_number(o, "scheduler.params.warmup_num_steps", v, 0); }},
    {"micro-batch,per-device-train-batch-size", Group::kTraining, "N", "rows that each rank computes at once (its batch size)",
     [](O& o, V& v) { set_number(o, "train_micro_batch_size_per_gpu", v, 1); }},
    {"accumulation,gradient-accumulation-steps", Group::kTraining, "N", "number of micro batches added up in one optimizer step",
     [](O& o, V& v) { set_number(o, "gradient_accumulation_steps", v, 1); }},
    {"context", Group::kTraining, "N", "tokens in one sample of a token file", [](O& o, V& v) { set_number(o, "dslaunch.data.context", v, 1); }},
    {"lora", Group::kTraining, "SPEC", "train low-rank adapters and keep the model's weights fixed: 'r=16,alpha=32,targets=*.q_proj,*.v_proj'", set_lora},
    {"loss", Group::kTraining, "NAME", "cross_entropy, mse, l1, bce_with_logits; for pairs of answers dpo, ipo, simpo, orpo",
     [](O& o, V& v) { set_text(o, "dslaunch.loss.name", v); }, false, false, "cross_entropy|mse|l1|bce_with_logits|dpo|ipo|simpo|orpo"},
    {"bf16", Group::kTraining, "", "train in bf16", [](O& o, V&) { o.set.push_back("bf16.enabled=true"); }},
    {"fp16", Group::kTraining, "", "train in fp16 with a scaled loss", [](O& o, V&) { o.set.push_back("fp16.enabled=true"); }},
    {"seed", Group::kTraining, "N", "seed of all random numbers; default: 1234", [](O& o, V& v) { set_seed(o, v); }},
    {"config,deepspeed-config,deepspeed-config-file", Group::kTraining, "FILE", "ds_config.json; default: the one packed in TARGET or beside it", [](O& o, V& v) { o.config = v; }},
    {"set", Group::kTraining, "KEY=VALUE", "override one value of the config, such as optimizer.params.lr=1e-4; repeatable", [](O& o, V& v) {
         if (v.find('=') == std::string::npos || v.front() == '=') fail_setting(v);
         o.set.push_back(v); }, true},
    {"resume", Group::kTraining, "[DIR]", "continue from the newest complete checkpoint in --output, from the one in DIR, or with =best from the best one", [](O& o, V& v) { set_resume(o, v); }},
    {"new-data", Group::kTraining, "", "with --resume: continue with other data than the checkpoint's, from the first sample", [](O& o, V&) { o.new_data = true; }},
    {"save-interval,save-steps", Group::kTraining, "N", "steps between checkpoints; 0: only at the end", [](O& o, V& v) { set_number_or_none(o, "dslaunch.save.interval", v); }},
    {"keep,save-total-limit", Group::kTraining, "N", "number of checkpoints to keep; 0: all", [](O& o, V& v) { set_number_or_none(o, "dslaunch.save.keep", v); }},
    {"save-best", Group::kTraining, "[METRIC]", "keep the best checkpoint too and make its weights the result; the best has the lowest eval_loss, or the best METRIC, such as eval_rewards/accuracies",
     [](O& o, V& v) { set_text(o, "dslaunch.save.best", v.empty() ? "eval_loss" : v); }},
    {"eval-interval,eval-steps", Group::kTraining, "N", "steps between evaluations of the held-out data; 0: only at the end", [](O& o, V& v) { set_number_or_none(o, "dslaunch.eval_interval", v); }},
    {"patience,early-stopping-patience", Group::kTraining, "N", "end the run after N evaluations in a row that are no better than the best one; 0: never",
     [](O& o, V& v) { set_number_or_none(o, "dslaunch.patience", v); }},
    {"sample-prompts", Group::kTraining, "FILE", "prompts, as for `dslaunch generate --file`, that the model continues at each evaluation",
     [](O& o, V& v) { set_text(o, "dslaunch.samples.file", v); }},
    {"save-via", Group::kTraining, "WHERE", "rank0: write checkpoints to rank 0's disk, for hosts without a shared file system",
     [](O& o, V& v) { o.set.push_back("dslaunch.save.via=" + v); }, false, false, "rank0|shared"},
    {"time-limit", Group::kTraining, "SECONDS", "save and end before the job has run this long; default: before Slurm's time limit", set_time_limit},
    {"bring-weights", Group::kTraining, "SIZE", "copy trained weights of up to SIZE from rank 0's host to --output here; default: 2G; 0: never", set_bring_weights},
    {"timeout", Group::kTraining, "SECONDS", "longest time that a rank waits for another before the job counts as hung; default: 300", set_timeout},
    {"straggler-interval", Group::kTraining, "STEPS", "steps between searches for a slow rank that delays the others; default: 100; 0: never", set_straggler_interval},
    {"op-library", Group::kTraining, "FILE", "load this library (.so) of operators before the model, such as torchvision's; repeatable", [](O& o, V& v) { o.op_libraries.push_back(v); }, true},
    {"trust-model", Group::kTraining, "", "let the model's code use operators that access files, memory or processes", [](O& o, V&) { o.trust_model = true; }},
    {"expect-sha256", Group::kTraining, "HASH", "run TARGET only if its SHA-256 is HASH, since a model contains code", set_sha256},
    {"scratch", Group::kTraining, "DIR", "folder on the first host's disk: verify puts its copy of the model there if the copy does not fit in memory", [](O& o, V& v) { o.scratch = v; }},
    {"autotuning", Group::kTraining, "HOW", "tune: find the fastest config, as `dslaunch tune` does, and write it below the config's autotuning.results_dir; run: then train with it", [](O& o, V& v) {
         if (v != "tune" && v != "run") fail(ExitCode::kUsage, "`{}` is neither tune nor run", printable(v));
         o.autotuning = v; }, false, false, "tune|run"},
    {"deepspeed", Group::kTraining, "[FILE]", "accepted but has no effect; a .json or YAML file after it is used as the config", [](O& o, V& v) { o.deepspeed = true; if (!v.empty()) o.config = v; }},

    {"output,output-dir,o", Group::kReport, "DIR", "folder for results: run.json and logs; for a training also metrics, checkpoints and weights, and then the default is runs/NAME-DATE", set_output},
    {"no-output", Group::kReport, "", "keep no results of a training, for example when you only measure speed", [](O& o, V&) { o.no_output = true; }},
    {"quiet,q", Group::kReport, "", "no progress line, only warnings and errors", [](O& o, V&) { o.log.quiet = true; }},
    {"log-level", Group::kReport, "LEVEL", "debug, info (default), warning, error, critical", set_log_level, false, false, "debug|info|warning|error|critical"},
    {"enable-each-rank-log,log-dir", Group::kReport, "DIR", "also write each rank's output to a file in DIR", [](O& o, V& v) { o.log.each_rank_directory = v; }},
    {"dry-run", Group::kReport, "", "print hosts, ranks, devices, environment and commands, without contacting any host", [](O& o, V&) { o.dry_run = true; }},
    {"json", Group::kReport, "", "with --dry-run: print JSON", [](O& o, V&) { o.json = true; }},
    {"print-env", Group::kReport, "", "show the environment of the ranks after they have started", [](O& o, V&) { o.log.print_environment = true; }},
    {"help,h", Group::kReport, "", "this text", [](O& o, V&) { o.help = true; }},
    {"version", Group::kReport, "", "print the version", [](O& o, V&) { o.version = true; }},
    {"all", Group::kReport, "", "with --help: also list the flags of torchrun, deepspeed and accelerate that are accepted or refused", [](O& o, V&) { o.help_all = true; }},
    {"save-pid", Group::kReport, "", "accepted, no effect: every job is recorded, see `dslaunch ps`", [](O&, V&) {}},

    {"hostfile,H", Group::kHosts, "FILE", "file with one host per line: `node1 slots=4` or `node2 gpus=2,3`; without it: this machine",
     [](O& o, V& v) { o.hostfile = v; o.standalone |= v.empty(); }, false, true},
    {"include,i", Group::kHosts, "SPEC", "use only these: NODE[:SLOT[,SLOT]][@NODE...], such as node1@node2:0,2", [](O& o, V& v) { o.filter.include = v; }},
    {"exclude,e", Group::kHosts, "SPEC", "use all hosts and slots except these, written as for --include", [](O& o, V& v) { o.filter.exclude = v; }},
    {"num-nodes", Group::kHosts, "N", "use the first N hosts of the hostfile", [](O& o, V& v) { set_count(o.filter.num_nodes, v, "nnodes"); }},
    {"num-gpus,num-accelerators", Group::kHosts, "N", "use the first N slots of each host; without GPUs: start N CPU workers", [](O& o, V& v) { set_count(o.filter.num_gpus, v, "nproc_per_node"); }},
    {"launcher", Group::kHosts, "NAME", "ssh (built in, default), openssh, pdsh, openmpi, slurm (default in a Slurm allocation), join (agents connect to this command), local (all on this machine)",
     set_launcher, false, false, "ssh|openssh|pdsh|openmpi|slurm|join|local"},
    {"launcher-args", Group::kHosts, "WORDS", "options for pdsh, mpirun or srun, or `-o X=Y` for openssh; a shell's quotes are understood; repeatable", set_launcher_args, true},
    {"listen", Group::kHosts, "ADDRESS:PORT", "with --launcher join: address where agents (`dslaunch agent --join ADDRESS:PORT`) reach this job", set_listen},
    {"token-file", Group::kHosts, "FILE", "file (mode 600) with the secret that joining agents must present; default: the variable DSLAUNCH_TOKEN", [](O& o, V& v) { o.token_file = v; }},
    {"connect-timeout", Group::kHosts, "SECONDS", "how long to wait for the agents of all hosts; default: 30; 60 with srun, 300 with --launcher join", set_connect_timeout},
    {"no-ssh", Group::kHosts, "", "this command is run on every node, each with its own --node_rank; node 0 starts the job at --master_addr, the others join it", [](O& o, V&) { o.no_ssh = true; }},
    {"force-multi", Group::kHosts, "", "use ssh even when every host is this machine", [](O& o, V&) { o.force_multi = true; }},
    {"elastic-training", Group::kHosts, "", "use the hosts that answer, and restart after a failure (--max_restarts, default 100)", [](O& o, V&) { o.elastic_training = true; }},
    {"min-elastic-nodes", Group::kHosts, "N", "with --elastic_training: the fewest hosts that must answer; default: 1", [](O& o, V& v) { o.elastic_nodes_min = count_or_all(v); }},
    {"max-elastic-nodes", Group::kHosts, "N", "with --elastic_training: the most hosts to use; default: all", [](O& o, V& v) { o.elastic_nodes_max = count_or_all(v); }},
    {"ssh-port", Group::kHosts, "PORT", "sshd port of hosts without port= in the hostfile", [](O& o, V& v) { o.ssh_port = port(v); }},
    {"ssh-config", Group::kHosts, "FILE", "ssh configuration file, used by every transport (or set DSLAUNCH_SSH_CONFIG)", [](O& o, V& v) { o.ssh_config = v; }},
    {"fanout", Group::kHosts, "N", "connect to at most N hosts; they start the agents on the other hosts, and need ssh keys for them; default: 256; 0: connect to all hosts from here", set_fanout},
    {"no-ssh-check", Group::kHosts, "", "do not check that a training's files are the same on all hosts (dslaunch itself is always checked)", [](O& o, V&) { o.check_hosts = false; }},
    {"push", Group::kHosts, "", "first send the hosts the files that they lack: dslaunch, and for a training the model, config, worker and libraries", [](O& o, V&) { o.push = true; }},
    {"master-addr", Group::kHosts, "ADDRESS", "address where ranks meet; default: an address of the first host that every host can reach", set_master_address},
    {"master-port", Group::kHosts, "PORT", "port where ranks meet; default: a free one", [](O& o, V& v) { agree(o.master_port, 0, port(v), "rdzv_endpoint"); }},
    {"verify", Group::kHosts, "", "compare data over 1 GiB between the hosts byte by byte, not only in samples", [](O& o, V&) { o.verify = true; }},

    {"device", Group::kTarget, "NAME", "auto (default), cpu or cuda", set_device, false, false, "auto|cpu|cuda"},
    {"module,m", Group::kTarget, "", "TARGET is a Python module: python3 -u -m TARGET", [](O& o, V&) { o.module = true; }},
    {"no-python", Group::kTarget, "", "run TARGET itself, even if it ends in .py", [](O& o, V&) { o.no_python = true; }},
    {"no-local-rank", Group::kTarget, "", "do not pass --local_rank=N to a Python target", [](O& o, V&) { o.no_local_rank = true; }},
    {"chdir", Group::kTarget, "DIR", "directory where workers start; default: the current one", [](O& o, V& v) { o.working_directory = v; }},
    {"grace", Group::kTarget, "SECONDS", "time to save after Ctrl-C; default: 30; 0, or a second Ctrl-C, ends the job at once", set_grace},

    {"bind", Group::kEnvironment, "HOW", "bind ranks to processors: none, core (each rank has its own cores) or numa (each rank has a NUMA node)",
     [](O& o, V& v) { set_binding(o, v, kBindNames); }, false, false, "none|core|numa"},
    {"bind-cores-to-rank", Group::kEnvironment, "", "as --bind core", [](O& o, V&) { set_binding(o, "core", kBindNames); }},
    {"bind-core-list", Group::kEnvironment, "LIST", "bind ranks to these processors of each host, such as 0-3,8", set_core_list},
    {"env", Group::kEnvironment, "NAME[=VALUE]", "set a variable for the workers; NAME alone copies the launcher's value; repeatable", [](O& o, V& v) { o.env.push_back(v); }, true},
    {"env-file", Group::kEnvironment, "FILE", "file of variables with one NAME=VALUE per line, such as .deepspeed_env; repeatable", [](O& o, V& v) { o.env_files.push_back(v); }, true},

    {"nproc-per-node", Group::kTorchrun, "N", "same as --num_gpus; also accepts gpu or auto", set_nproc},
    {"node-rank", Group::kTorchrun, "N", "number of this node, for --no_ssh or when the same command runs on every node; otherwise 0, since dslaunch starts all nodes itself", set_node_rank},
    {"nnodes", Group::kTorchrun, "N|MIN:MAX", "same as --num_nodes; MIN:MAX: each attempt uses the hosts of the hostfile that answer, at least MIN and at most MAX", set_nnodes},
    {"standalone", Group::kTorchrun, "", "use this machine alone (the default without a hostfile)", [](O& o, V&) { o.standalone = true; o.no_local_rank = true; }},
    {"rdzv-backend", Group::kTorchrun, "NAME", "c10d or static; dslaunch uses its own rendezvous for both", [](O& o, V& v) {
         if (v != "c10d" && v != "static") fail(ExitCode::kUsage, "`{}` is not supported; leave it out, dslaunch has its own rendezvous", printable(v));
         o.no_local_rank = true; }, false, false, "c10d|static"},
    {"rdzv-endpoint", Group::kTorchrun, "HOST[:PORT]",
     "same as --master_addr and --master_port; with --nnodes N and no hostfile, the same command runs on every node, and the nodes meet at this address", set_endpoint},
    {"rdzv-id,job-id", Group::kTorchrun, "NAME", "the job's name, which workers get as TORCHELASTIC_RUN_ID", set_job_id},
    {"numa-binding", Group::kTorchrun, "HOW", "bind ranks by their GPU: node, socket, exclusive or core-complex",
     [](O& o, V& v) { set_binding(o, v, kNumaBindingNames); o.no_local_rank = true; }, false, false, "node|socket|exclusive|core-complex"},
    {"max-restarts", Group::kTorchrun, "N", "restart the job after a failure, at most N times; default: 0, with --elastic_training 100", set_max_restarts},
    {"rdzv-conf", Group::kTorchrun, "SETTINGS", "accepted, no effect: dslaunch's own rendezvous has no settings", [](O& o, V&) { o.no_local_rank = true; }},
    {"monitor-interval", Group::kTorchrun, "SECONDS", "accepted, no effect: dslaunch notices a dead rank at once", [](O& o, V&) { o.no_local_rank = true; }},
    {"start-method", Group::kTorchrun, "NAME", "accepted, no effect: each worker always runs in its own process", [](O& o, V&) { o.no_local_rank = true; }},
    {"use-env", Group::kTorchrun, "", "accepted: --local_rank=N is not passed, as with torch.distributed.launch --use_env", [](O& o, V&) { o.no_local_rank = true; }},
    {"event-log-handler", Group::kTorchrun, "NAME", "accepted, no effect: events are in dslaunch's own log", [](O& o, V&) { o.no_local_rank = true; }},
    {"signals-to-handle", Group::kTorchrun, "NAMES", "accepted, no effect: SIGTERM, SIGINT, SIGHUP and SIGUSR1 always end the job cleanly", [](O& o, V&) { o.no_local_rank = true; }},

    {"force", Group::kRefused, "", "existing runs are never overwritten: give a new folder with --output, or continue the run with --resume"},
    {"role", Group::kRefused, "", "all workers have the role `default`"},
    {"virtual-local-rank", Group::kRefused, "", "every rank sees all GPUs of its host; LOCAL_RANK tells each rank which GPU to use"},
    {"config-file", Group::kRefused, "", "accelerate's YAML is not read: pass its deepspeed_config_file as --config, num_machines as --num_nodes, and the number of workers per host as --num_gpus"},
    {"num-processes", Group::kRefused, "", "accelerate counts workers over all machines: give the number of workers per host as --num_gpus"},
    {"num-machines", Group::kRefused, "", "use --num_nodes, or --nnodes if every machine runs this command"},
    {"machine-rank", Group::kRefused, "", "use --node_rank if every machine runs this command; otherwise leave it out: dslaunch starts all machines itself"},
    {"main-process-ip", Group::kRefused, "", "give --master_addr"},
    {"main-process-port", Group::kRefused, "", "give --master_port"},
    {"mixed-precision", Group::kRefused, "", "for a model use --bf16 or --fp16; a script has its own options"},
    {"use-deepspeed,multi-gpu,same-network", Group::kRefused, "", "leave it out: dslaunch always starts one worker per slot"},
    {"zero-stage", Group::kRefused, "", "for a model use --set zero_optimization.stage=N; a script has its own options"},
    {"gpu-ids", Group::kRefused, "", "use --include localhost:0,1, or set CUDA_VISIBLE_DEVICES"},
    {"dynamo-backend", Group::kRefused, "", "a script has its own options for torch.compile"},
    {"venv-script", Group::kRefused, "", "no shell runs on the hosts; use --env PATH=... or give the path of the environment's python as TARGET"},
    {"redirects,r", Group::kRefused, "", "give --enable_each_rank_log DIR"},
    {"tee,t", Group::kRefused, "", "use --enable_each_rank_log DIR, which writes to files and to the terminal"},
    {"local-rank", Group::kRefused, "", "leave it out: each rank gets its local rank in LOCAL_RANK"},
    {"local-ranks-filter", Group::kRefused, "", "choosing which ranks the terminal shows is not supported; each line names its rank"},
    {"local-addr", Group::kRefused, "", "use addr= in the hostfile, or --master_addr"},
    {"logs-specs", Group::kRefused, "", "it is a Python plug-in of torchrun, which dslaunch cannot load; use --enable_each_rank_log DIR"},
    {"run-path", Group::kRefused, "", "give the script as TARGET"},
};
// clang-format on

}  // namespace

std::span<const OptionRow> option_rows() {
    return kRows;
}

std::string_view group_title(Group group) {
    return kTitles[static_cast<size_t>(group)];
}

std::vector<Option> run_rows(RunOptions& into,
                             const std::function<bool(const OptionRow&)>& is_taken) {
    std::vector<Option> options;
    for (const OptionRow& row : kRows) {
        if (!is_taken(row)) continue;
        Option option{row.names,        row.value_name,         row.help,   {}, row.repeatable,
                      row.may_be_empty, group_title(row.group), row.choices};
        if (row.apply != nullptr) {
            option.apply = [&into, &row](const std::string& value) {
                if (row.group == Group::kTraining && into.first_training_option.empty())
                    into.first_training_option = "--" + split(row.names, ',').front();
                const size_t known = into.set.size();
                row.apply(into, value);
                const std::string name = "--" + split(row.names, ',').front();
                for (size_t i = known; i < into.set.size() && row.names != "set"; ++i)
                    into.set_by[into.set[i].substr(0, into.set[i].find('='))] = name;
            };
        }
        options.push_back(std::move(option));
    }
    return options;
}

const OptionRow* find_option_row(const std::string& word) {
    if (!word.starts_with("-") || word.size() < 2) return nullptr;
    const bool is_long = word.starts_with("--");
    const std::string spelt = with_dashes(word.substr(0, word.find('=')));
    const std::string name = spelt.substr(is_long ? 2 : 1);
    for (const OptionRow& row : option_rows()) {
        if (row.apply == nullptr) continue;
        for (const std::string& own : split(row.names, ','))
            if (own == name && (own.size() > 1) == is_long) return &row;
    }
    return nullptr;
}

}  // namespace dslaunch::launcher
