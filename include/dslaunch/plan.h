// The memory, the time and the instructions of a step that a job will need, as `dslaunch plan`
// finds them. The model is measured by a child process, so the caller needs neither LibTorch
// nor the memory. Link with dslaunch::plan. Guide: docs/guide/engine.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/error.h"

namespace dslaunch {

// The job to plan.
struct PlanRequest {
    std::string model;                 // an archive (.pt, .pt2) or a Hugging Face folder
    std::vector<std::string> options;  // of `dslaunch plan`, such as {"--world-size", "8"}
    std::chrono::milliseconds time_limit{600'000};
    std::string program;  // see JobRequest::program
};

// One instruction of a rank's step.
struct PlanInstruction {
    std::string op;    // "Gather", "Forward", "Backward", "Reduce", "Update", …
    std::string lane;  // "compute", "communication", …
    int segment = -1;  // -1: of no segment; so are bucket and micro_step
    int bucket = -1;
    int micro_step = -1;
    int64_t bytes = 0;
    int64_t sent_bytes = 0;  // to other hosts
    int64_t flops = 0;
    std::vector<int> waits;  // the instructions, by index, that must be done first
};

// The step of a rank.
struct RankPlan {
    int rank = 0;
    std::vector<PlanInstruction> instructions;
    int64_t sent_bytes = 0;  // to other hosts, in a step; so are the next two
    int64_t disk_read_bytes = 0;
    int64_t disk_written_bytes = 0;
};

// A kind of memory of a host with the most ranks, compared with this machine's.
struct PlanTier {
    std::string name;                    // "memory", …
    int64_t need_bytes = 0;              // of all ranks of the host
    std::optional<int64_t> limit_bytes;  // nullopt: no limit is known
    std::string limited_by;
};

// The plan of a job.
struct Plan {
    std::vector<RankPlan> ranks;  // by rank
    int64_t parameters = 0;
    int64_t trainable_parameters = 0;
    bool fits = true;    // on hosts like this machine
    std::string advice;  // what would fit; empty: it fits
    std::vector<PlanTier> tiers;
    std::optional<double> step_seconds;  // present if the options have "--forecast"
    std::string json;                    // everything that `dslaunch plan --json` says
};

// Returns the plan of REQUEST. Throws the error of `dslaunch plan`: kConfig, kInput, kUsage for an
// option, kSetup if the program dslaunch is not found; kHang after the time limit. A job that does
// not fit is no error. Waits for the child. Any thread.
[[nodiscard]] Plan make_plan(const PlanRequest& request);

}  // namespace dslaunch
