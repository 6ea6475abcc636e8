// `dslaunch model import`. Used by model.cpp.
#pragma once

#include <string>

#include "base/text/command_line.h"

namespace dslaunch::worker {

struct ImportArguments {
    std::string folder, out;
    std::string dtype;  // empty: as in the folder
    bool force = false;
};

void add_import(CommandLine& app, ImportArguments& arguments);
// Throws Error{kInput} for a folder that is no model of Hugging Face that is known, Error{kDisk}.
void run_import(const ImportArguments& arguments);

}  // namespace dslaunch::worker
