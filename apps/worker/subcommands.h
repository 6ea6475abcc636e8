// The common frame of the roles that have subcommands: `dslaunch model` and `dslaunch data`. No
// state.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/text/command_line.h"
#include "storage/huggingface/named_place.h"

namespace dslaunch::worker {

// The names of subcommands, each with its work.
using Subcommands = std::vector<std::pair<std::string, std::function<void()>>>;

// Parses the arguments of a role and runs the subcommand that they name. Returns the exit code 0,
// also after --help. Throws Error{kUsage} for bad arguments and for a word that asks for a download
// (storage::refuse_download), and what the subcommand throws. REQUIRES: APP has all of SUBCOMMANDS.
inline int run_subcommand(CommandLine& app, const Subcommands& subcommands, int argc, char** argv) {
    if (argc > 1) storage::refuse_download(argv[1], argc > 2 ? argv[2] : "");
    if (!app.parse({argv + 1, argv + argc})) return 0;
    for (const auto& [name, run] : subcommands)
        if (app.chose(name)) run();
    return 0;
}

}  // namespace dslaunch::worker
