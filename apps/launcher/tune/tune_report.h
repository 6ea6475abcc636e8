// The output of `dslaunch tune` about a search, and the text of the config that it writes. Pure.
#pragma once

#include <string>
#include <vector>

#include "config/read/train_config.h"
#include "launcher/tune/forecasts.h"
#include "launcher/tune/tune_search.h"

namespace dslaunch::launcher {

// Returns a table of the tried configs with their forecasts, measurements and METRIC (latency,
// throughput or flops), and lines that say why the other configs were not tried. WIDTH: columns of
// the terminal; 0: without limit.
[[nodiscard]] std::string search_text(const Forecasts& forecasts, const SearchResult& result,
                                      const std::string& metric, size_t width);

// Returns the contents of search_text() as one JSON object: {"tried": [{settings, "step_s": [...],
// …}], "untried": [{"why", "configs"}], "chosen", "set"}.
[[nodiscard]] std::string search_json(const Forecasts& forecasts, const SearchResult& result);

// Returns "micro batch 4 x 2, …: 12.3 ms a step, 1.41 times as fast as the given config".
// REQUIRES: a candidate was measured.
[[nodiscard]] std::string choice_text(const SearchResult& result);

// Returns the text of a file with CONFIG and the overrides SET, which were chosen for the reason
// WHY. A file whose NAME ends with .yaml, .yml or .hjson begins with comments that state the
// overrides and the reason. Keeps the order of CONFIG's keys and drops its comments. REQUIRES:
// CONFIG has no problems.
[[nodiscard]] std::string tuned_config_text(config::TrainConfig config,
                                            const std::vector<std::string>& set,
                                            const std::string& why, const std::string& name);

}  // namespace dslaunch::launcher
