// The facts about one run for its page. Data path: run_folder.h -> [here] -> html_page.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/report/metrics_table.h"

namespace dslaunch::launcher {

// A value of the resolved config: its key, its JSON text, and who set it.
struct RunConfigValue {
    std::string path, value, origin;
};

// One instruction in trace.json, in ms since the beginning of the step.
struct RunTraceSpan {
    size_t lane = 0;  // in RunTrace::lanes
    std::string kind;
    double begin_ms = 0, end_ms = 0;
    bool is_predicted = false;
};
// One step, as measured and as predicted, if the run had dslaunch.trace_step.
struct RunTrace {
    std::vector<std::string> lanes;
    std::vector<RunTraceSpan> spans;
};

// The name of a fact and its text.
using RunFact = std::pair<std::string, std::string>;

// A table: the head, and rows with the same number of cells.
struct ReportTable {
    std::vector<std::string> head;
    std::vector<std::vector<std::string>> rows;
};

// All that is known of one run.
struct RunFolder {
    std::string path;                        // the path that was given
    std::string name;                        // for legends
    std::string target, end, started, took;  // empty: not known
    int64_t world_size = 0;                  // 0: not known
    std::optional<int64_t> parameters;
    std::vector<RunFact> said;  // facts that rank 0 reported at the start: model, data, run
    std::vector<RunConfigValue> config;
    ReportTable hosts, ranks, checkpoints;
    RunTrace trace;
    std::string predicted_memory, measured_memory;  // memory of a rank; empty: not known
    MetricsTable metrics;
    std::vector<std::string> warnings;  // warnings and errors in rank 0's log
    std::string last_lines;             // the end of rank 0's log
    std::vector<std::string> problems;  // parts that are missing or damaged
};

}  // namespace dslaunch::launcher
