// `dslaunch model merge`. Used by model.cpp.
#pragma once

#include <string>

#include "base/text/command_line.h"

namespace dslaunch::worker {

struct MergeArguments {
    std::string model, adapter, out;
    bool trust_model = false;
    bool force = false;
};

void add_merge(CommandLine& app, MergeArguments& arguments);
// Throws Error{kInput} for an adapter of another model or that is not whole, and for a folder OUT
// that holds files of another model; Error{kDisk}.
void run_merge(const MergeArguments& arguments);

}  // namespace dslaunch::worker
