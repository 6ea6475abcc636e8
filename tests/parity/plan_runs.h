// Runs `dslaunch plan` on the scripted GPT of the fixtures, in eight segments.
#pragma once

#include <string>
#include <vector>

#include "fixture_runs.h"
#include "support/places.h"

namespace dslaunch::test {

struct PlanResult {
    int code = -1;
    std::string out;
    std::string err;
};

inline PlanResult plan(const TemporaryFolder& folder, const std::vector<std::string>& options) {
    std::vector<std::string> command = {kDslaunch,   "plan",  fixture_archive("gpt"),
                                        "--context", "16",    "--segments",
                                        "8",         "--set", "train_micro_batch_size_per_gpu=2"};
    command.insert(command.end(), options.begin(), options.end());
    JobProcess process(folder, command);
    PlanResult result;
    result.code = process.wait();
    result.out = process.out();
    result.err = process.err();
    return result;
}

inline Json plan_json(const TemporaryFolder& folder, std::vector<std::string> options) {
    options.push_back("--json");
    const PlanResult result = plan(folder, options);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return Json::parse(result.out);
}

}  // namespace dslaunch::test
