// Turns the user's settings into a run's: train config -> [resolve] -> run config. Every value has
// an origin, every `auto` a number and its formula, and all problems are found at once. No threads:
// pure functions.
#pragma once

#include <string>

#include "config/resolve/resolved.h"

namespace dslaunch::config {

// Returns the run config and its problems. Never throws on a bad config.
[[nodiscard]] Resolved resolve(const TrainConfig& config, const ResolveOptions& options = {});

// Throws Error{kConfig} with all problems, one a line, when there are any.
void require_valid(const Resolved& resolved);

// Returns a ds_config.json that resolves to an equal RunConfig at the same world size.
[[nodiscard]] std::string config_text(const Resolved& resolved);

// Returns a table for people: key, value, origin in columns, then the notes. Origins are broken at
// WIDTH columns, and stand below where they have no room there; 0: nowhere.
[[nodiscard]] std::string resolved_table(const Resolved& resolved, size_t width = 0);

// Returns "KEY VALUE, KEY VALUE": settings in the config or by options that are not the default.
[[nodiscard]] std::string differences_text(const Resolved& resolved);

// Returns {"ok": bool, "values": [{"path", "value", "origin"}], "notes": [...], "warnings": [...],
// "chosen": text, "errors": [{"path", "message", "origin"}]}.
[[nodiscard]] std::string resolved_json(const Resolved& resolved);

}  // namespace dslaunch::config
