// resolve() leads from what the user said to what a run reads: train config -> [resolve] -> run
// config. Every value has an origin, every `auto` a number and its formula, and all problems are
// found at once. No threads: pure functions.
#pragma once

#include "config/read/train_config.h"
#include "config/run/run_config.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

struct ResolveOptions {
    // The ranks of the run. Unset: the batch relation is checked only when the config gives all
    // three values, and data_parallel_size is 1 where it does not follow from them.
    std::optional<int64_t> world_size;
    bool needs_steps = false;  // a training run: no steps, no run
};

struct ResolvedValue {
    std::string path;
    Value value;    // null: unset
    Origin origin;  // "ds_config.json:3:5" | "--set" | "--steps" | "default" | "derived: FORMULA"
    bool unsaid = false;  // holds only for this world size: printed, left out of config_text()
};

struct Resolved {
    RunConfig config;                   // REQUIRES for use: problems.empty()
    std::vector<Problem> problems;      // they come in the order of the text, relations last
    std::vector<ResolvedValue> values;  // every supported key that holds, in the schema's order
    std::vector<std::string> notes;  // one line for each key that was said and has no effect here
};

// Never throws on a bad config.
[[nodiscard]] Resolved resolve(const TrainConfig& config, const ResolveOptions& options = {});

// Throws Error{kConfig} with all problems, one a line, when there are any.
void require_valid(const Resolved& resolved);

// A ds_config.json that resolves to an equal RunConfig at the same world size.
[[nodiscard]] std::string config_text(const Resolved& resolved);

// The table is for people: key, value, origin in columns, then the notes.
[[nodiscard]] std::string resolved_table(const Resolved& resolved);

// {"ok": bool, "values": [{"path", "value", "origin"}], "notes": [...], "errors": [{"path",
// "message", "origin"}]}
[[nodiscard]] std::string resolved_json(const Resolved& resolved);

}  // namespace dslaunch::config
