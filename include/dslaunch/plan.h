// Plans a job as `dslaunch plan` does: the memory, the time and the instructions of its steps. A
// child process measures the model, so the caller needs neither LibTorch nor memory for the model.
// Link with dslaunch::plan. Guide: docs/guide/engine.md.
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
    std::vector<std::string> options;  // options of `dslaunch plan`, e.g. {"--world-size", "8"}
    std::chrono::milliseconds time_limit{600'000};
    std::string program;  // see JobRequest::program
};

// One instruction of a rank's step.
struct PlanInstruction {
    std::string op;    // "Gather", "Forward", "Backward", "Reduce", "Update", …
    std::string lane;  // "compute", "communication", …
    int segment = -1;  // -1: the instruction has none; the same for bucket, micro_step
    int bucket = -1;
    int micro_step = -1;
    int64_t bytes = 0;
    int64_t sent_bytes = 0;  // bytes sent to other hosts
    int64_t flops = 0;
    std::vector<int> waits;  // indices of the instructions that must be done first
};

// The step of a rank.
struct RankPlan {
    int rank = 0;
    std::vector<PlanInstruction> instructions;
    int64_t sent_bytes = 0;  // bytes sent to other hosts in a step; the next two are per step too
    int64_t disk_read_bytes = 0;
    int64_t disk_written_bytes = 0;
};

// One kind of memory: the bytes that the host with the most ranks needs, and this machine's limit.
struct PlanTier {
    std::string name;                    // "memory", …
    int64_t need_bytes = 0;              // need of all ranks of the host together
    std::optional<int64_t> limit_bytes;  // nullopt: no limit is known
    std::string limited_by;
};

// The plan of a job.
struct Plan {
    std::vector<RankPlan> ranks;  // one for each rank
    int64_t parameters = 0;
    int64_t trainable_parameters = 0;
    bool fits = true;    // the job fits on hosts like this machine
    std::string advice;  // settings that would fit; empty if the job fits
    std::vector<PlanTier> tiers;
    std::optional<double> step_seconds;  // present if the options have "--forecast"
    std::string json;                    // everything that `dslaunch plan --json` says
};

// Returns the plan of REQUEST. Throws the errors of `dslaunch plan`: kConfig, kInput, and kUsage
// for a bad option. Also throws kSetup if the program dslaunch is not found, and kHang after the
// time limit. If the job does not fit, the plan says so, without an error. Waits for the child
// process. Any thread.
[[nodiscard]] Plan make_plan(const PlanRequest& request);

}  // namespace dslaunch
