// Turns the user's settings into a run's settings. Data path: train config -> [resolve] -> run
// config. Every value gets an origin, every `auto` a number and its formula, and all problems are
// found in one pass. No threads: pure functions.
#pragma once

#include <string>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns the run config and its problems. Does not throw for a bad config.
[[nodiscard]] Resolved resolve(const TrainConfig& config, const ResolveOptions& options = {});

// Throws Error{kConfig} with all problems, one on each line, if there are any.
void require_valid(const Resolved& resolved);

// Returns a ds_config.json that resolves to an equal RunConfig at the same world size.
[[nodiscard]] std::string config_text(const Resolved& resolved);

// Returns a table for people with the columns key, value and origin, followed by the notes. Lines
// are broken at WIDTH columns (0: no limit), and origins are put on separate lines if the width
// is too small for them.
[[nodiscard]] std::string resolved_table(const Resolved& resolved, size_t width = 0);

// Returns the settings that the user changed from their defaults, in the config or by options: "KEY
// VALUE, KEY VALUE".
[[nodiscard]] std::string differences_text(const Resolved& resolved);

// Returns what a user changes in a command so that the key PATH gets VALUE, its default: `--set
// PATH=VALUE`, or the option that gave another value and must be left out.
[[nodiscard]] std::string other_value_text(const Resolved& resolved, std::string_view path,
                                           std::string_view value);

// Returns {"ok": bool, "values": [{"path", "value", "origin"}], "notes": [...], "warnings": [...],
// "chosen": text, "errors": [{"path", "message", "origin"}]}.
[[nodiscard]] std::string resolved_json(const Resolved& resolved);

}  // namespace dslaunch::config
