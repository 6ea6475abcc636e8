// A command line that is typed on a made-up machine, and the job that it begins.
#pragma once

#include <string>

#include "base/text.h"
#include "launcher/options/machine.h"
#include "launcher/options/parse_run.h"
#include "launcher/run/build_job.h"

namespace dslaunch::test {

// Returns a machine without GPUs and variables, whose current folder is FOLDER.
inline launcher::Machine head_machine(const std::string& folder = "/home/me") {
    launcher::Machine machine;
    machine.host_name = "head";
    machine.directory = folder;
    machine.binary_directory = "/opt/bin";
    return machine;
}

// Returns the options in LINE, a command line without "dslaunch" and without quotes.
inline launcher::RunOptions typed_options(const std::string& line) {
    return launcher::parse_run_options(split(line, ' '));
}

inline launch::JobSpec typed_job(const std::string& line,
                                 const launcher::Machine& on = head_machine()) {
    return launcher::build_job(typed_options(line), on).spec;
}

}  // namespace dslaunch::test
