// A reporter that stores the lines that a trainer writes to metrics.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "runtime/train/reporter.h"

namespace dslaunch::testing {

using namespace runtime;

// Stores rank 0's lines of metrics.
class MetricsKeeper final : public Reporter {
  public:
    void metrics(std::string_view line) override { lines.push_back(nlohmann::json::parse(line)); }
    void run_info(std::string_view) override {}
    void run_result(std::string_view) override {}
    void progress(std::string_view) override {}
    void ready() override {}
    void heartbeat(const launch::Heartbeat&) override {}
    void health(std::string_view) override {}
    void failure(ExitCode, std::string_view) override {}
    [[nodiscard]] bool asked_to_end() const override { return false; }
    std::vector<nlohmann::json> lines;
};

}  // namespace dslaunch::testing
