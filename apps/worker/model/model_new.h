// `dslaunch model new`. Used by model.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/text/command_line.h"
#include "graph/models/models.h"

namespace dslaunch::worker {

struct GptArguments {
    std::string out, size = "small";
    std::optional<int64_t> vocab, width, heads, layers, context;
    double dropout = 0.0;
    bool tie = false;
    uint64_t seed = 1234;
    bool force = false;
};

struct NewArguments {
    GptArguments gpt;
    std::string mlp_out;
    bool mlp_force = false;
    graph::MlpOptions mlp;
    const CommandLine* kinds = nullptr;  // knows which was chosen
};

// ARGUMENTS must outlive APP's parsing.
void add_new(CommandLine& app, NewArguments& arguments);
// Throws Error{kUsage} for an option out of range, Error{kInput} for a file that is there already,
// Error{kDisk}.
void run_new(const NewArguments& arguments);

}  // namespace dslaunch::worker
