// `dslaunch model show`. Used by model.cpp.
#pragma once

#include <string>

#include "base/text/command_line.h"

namespace dslaunch::worker {

struct ShowArguments {
    std::string model;
    std::vector<std::string> op_libraries;
    int depth = 3;
    bool parameters = false, json = false, trust_model = false;
};

void add_show(CommandLine& app, ShowArguments& arguments);
// Prints to stdout. Throws Error{kInput} for a model that cannot be read.
void run_show(const ShowArguments& arguments);

}  // namespace dslaunch::worker
