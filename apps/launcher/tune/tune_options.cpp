#include "launcher/tune/tune_options.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launcher/options/option_table.h"
#include "launcher/options/options.h"
#include "launcher/options/parse_run.h"
#include "storage/disk/output_place.h"
#include "storage/huggingface/named_place.h"

namespace dslaunch::launcher {
namespace {

constexpr double kMinutesMax = 7 * 24 * 60;
constexpr int kTrialsMax = 10'000;

// The options of `run` that trials cannot have, because trials keep no results and start from the
// model.
constexpr std::array<std::string_view, 11> kNotOfTrials = {
    "output", "no-output", "enable-each-rank-log", "resume",   "new-data", "dry-run",
    "verify", "print-env", "autotuning",           "save-pid", "all"};

bool is_of_trials(const OptionRow& row) {
    const std::string name = split(row.names, ',').front();
    return std::ranges::find(kNotOfTrials, name) == kNotOfTrials.end() && name != "scratch" &&
           row.group != Group::kRefused;
}

double minutes_of(const std::string& value) {
    const auto minutes = parse_double(value);
    if (!minutes || !(*minutes > 0 && *minutes <= kMinutesMax))
        fail(ExitCode::kUsage, "`{}` is not a number of minutes greater than 0 and at most {}",
             printable(value), kMinutesMax);
    return *minutes;
}

int trials_of(const std::string& value) {
    const auto trials = parse_int(value);
    if (!trials || *trials < 1 || *trials > kTrialsMax)
        fail(ExitCode::kUsage, "`{}` is not a number from 1 to {}", printable(value), kTrialsMax);
    return static_cast<int>(*trials);
}

std::string tuner_of(const std::string& value) {
    if (value == "model" || value == "grid" || value == "random") return value;
    if (value == "model_based") return "model";
    if (value == "gridsearch") return "grid";
    fail(ExitCode::kUsage, "`{}` is none of model, grid, random", printable(value));
}

// Returns the options of the search itself. If `run` has an option with the same name, the option
// here takes its place.
std::vector<Option> own_options(TuneOptions& into) {
    constexpr std::string_view kTitle = "search";
    return {
        {"minutes", "N", "time for the whole search; default: 10",
         [&into](const std::string& value) { into.minutes = minutes_of(value); }, false, false,
         kTitle},
        {"output,o", "FILE",
         "write the chosen config to FILE (.json, or .yaml or .hjson with comments)",
         [&into](const std::string& value) { into.output = value; }, false, false, kTitle},
        {"force", "", storage::kForceHelp, [&into](const std::string&) { into.force = true; },
         false, false, kTitle},
        {"trials", "N", "try at most N configs; default: 50",
         [&into](const std::string& value) { into.trials = trials_of(value); }, false, false,
         kTitle},
        {"tuner", "NAME",
         "model (default): the shortest expected step first, until no gain is expected; grid: all "
         "configs; random: all configs in a random order",
         [&into](const std::string& value) { into.tuner = tuner_of(value); }, false, false, kTitle,
         "model|grid|random"},
        {"early-stopping", "N", "end after N trials in a row without a gain",
         [&into](const std::string& value) {
             into.run.set.push_back(
                 fmt::format("autotuning.tuner_early_stopping={}", trials_of(value)));
         },
         false, false, kTitle},
        {"json", "", "print the result as one JSON object",
         [&into](const std::string&) { into.json = true; }, false, false, kTitle},
    };
}

std::vector<Option> all_options(TuneOptions& into) {
    std::vector<Option> options = own_options(into);
    const std::vector<Option> of_run = run_rows(into.run, is_of_trials);
    options.insert(options.end(), of_run.begin(), of_run.end());
    return options;
}

}  // namespace

void require_startable(const RunOptions& options) {
    for (const char* ending : {".json", ".hjson", ".yaml", ".yml"})
        if (options.target.ends_with(ending))
            fail(ExitCode::kUsage,
                 "{} is a config, not a model: dslaunch tune MODEL --data FILE --config {}",
                 printable(options.target), shell_word(options.target));
    if (target_kind_of(options) != launch::TargetKind::kModel)
        fail(ExitCode::kUsage,
             "{} is not a model: only the training of a model can be tuned, because dslaunch "
             "cannot change how a script or program trains",
             printable(options.target));
    if (options.no_ssh || options.launcher == "join" || options.node_rank.value_or(0) > 0)
        fail(ExitCode::kUsage,
             "trials are started one after another, so this machine must reach the hosts by "
             "itself: use a --hostfile, or start the search inside a Slurm allocation");
    if (options.elastic_training || options.nodes)
        fail(ExitCode::kUsage,
             "a config is tuned for a fixed number of ranks: leave out --elastic_training and "
             "--nnodes MIN:MAX, and choose the hosts with --num_nodes or --include");
}

TuneOptions parse_tune_options(CommandWords words) {
    TuneOptions options;
    const std::vector<Option> rows = all_options(options);
    const auto rest = parse_options(rows, words, [&](const std::string& word) {
        if (!options.run.target.empty())
            fail(ExitCode::kUsage, "unexpected `{}` after the model {}", printable(word),
                 printable(options.run.target));
        if (word.empty()) fail(ExitCode::kUsage, "the model is an empty string");
        options.run.target = word;
        return false;
    });
    options.help = options.run.help;
    if (options.help || options.run.version) return options;
    if (options.run.target.empty())
        fail(ExitCode::kUsage, "MODEL is missing: dslaunch tune MODEL --data FILE");
    if (!rest.empty())
        fail(ExitCode::kUsage, "unexpected `{}` after the model", printable(rest.front()));
    settle_run_options(options.run);
    require_startable(options.run);
    return options;
}

HelpPage tune_page() {
    TuneOptions unused;
    HelpPage page{
        .does =
            "Finds the fastest config for a training on its hosts, by forecasts and short trials. "
            "It considers micro batch and accumulation, ZeRO stage, recompute, sizes of buckets "
            "and, where the config names an nvme_path, offload; the batch stays the same. The "
            "shortest expected step is tried first, each trial a normal job of a few steps. "
            "Settings that are given as options or --set stay as they are. Ctrl-C ends the search "
            "and keeps the best config so far; no other files remain.",
        .examples = {"dslaunch tune train.pt --data corpus.tokens --context 64 -o tuned.json",
                     "dslaunch tune train.pt --config ds_config.json --minutes 5 -o tuned.yaml",
                     "dslaunch tune --hostfile hostfile train.pt --set zero_optimization.stage=3"},
        .exit_codes = "76 after Ctrl-C; if no trial worked, the code of the last one.",
        .docs = "docs/scale/tune.md",
        .usage = {"dslaunch tune [options] MODEL"}};
    page.groups = option_groups(all_options(unused));
    return page;
}

}  // namespace dslaunch::launcher
