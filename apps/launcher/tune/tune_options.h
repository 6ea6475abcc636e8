// The command line of `dslaunch tune`: the options of `run`, and some of its own. Does not read the
// environment, and only checks whether files exist.
#pragma once

#include <optional>
#include <string>

#include "base/text/help_page.h"
#include "launcher/options/run_options.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {

// The options of a search.
struct TuneOptions {
    RunOptions run;             // options of the trials
    double minutes = 10;        // for the whole search
    std::optional<int> trials;  // configs that are tried; not set: the config's number
    std::string tuner;          // model, grid or random; empty: the config's tuner
    std::string output;         // the chosen config; empty: only printed
    bool force = false;         // OUTPUT may be replaced
    bool json = false;
    bool help = false;
    bool by_autotuning = false;  // true: `--autotuning` of a run asked for the search
};

// Parses WORDS. Throws Error{kUsage} under the same conditions as parse_run_options(), for a target
// that is not a model, and for options that trials cannot have.
[[nodiscard]] TuneOptions parse_tune_options(CommandWords words);

// Throws Error{kUsage} if OPTIONS describe a job whose trials this machine cannot start, for
// example because other nodes would have to join each trial by themselves.
void require_startable(const RunOptions& options);

// Returns the page that `dslaunch tune --help` prints.
[[nodiscard]] HelpPage tune_page();

}  // namespace dslaunch::launcher
