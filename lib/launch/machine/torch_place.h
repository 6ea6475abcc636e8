// Finds the LibTorch of a dsworker. It may be in the folders that are written into the program:
// these hold the program's own copy, or the torch of the Python environment that it was installed
// into. Otherwise it is in another environment of this machine. Data path: environment of a worker
// -> [here] -> LD_LIBRARY_PATH of that worker. Reads file names and one version; runs nothing. No
// threads.
#pragma once

#include <string>
#include <vector>

#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The variable by which a user names the folder of a torch: …/site-packages/torch.
inline constexpr const char* kTorchVariable = "DSLAUNCH_TORCH";

// Returns "2.11", the version of LibTorch that this build was made with; empty if it has none.
[[nodiscard]] const char* torch_of_build();

// The place of a program and its needs, as far as LibTorch is concerned.
struct TorchSeeker {
    std::string prefix;                // /opt/x for the program /opt/x/bin/dsworker
    std::vector<std::string> folders;  // the program's own search folders, which come first
    std::string version;               // version of LibTorch that it needs, such as "2.11"; empty:
                                       // any
};

// Returns folders to be searched for libraries in addition to the program's own, separated by
// colons; empty if the program's own folders contain LibTorch. Throws Error{kSetup} if no LibTorch
// of SEEKER's version is found. Also throws it if the program's own folders contain a LibTorch of a
// different version, or a LibTorch other than DSLAUNCH_TORCH's.
[[nodiscard]] std::string torch_search_path(const TorchSeeker& seeker,
                                            const EnvironmentList& environment);

// Makes sure that WORKER, the path of a dsworker, finds LibTorch if it is started with ENVIRONMENT.
// May change LD_LIBRARY_PATH in ENVIRONMENT. Does nothing if the program does not need LibTorch, or
// if it cannot be read: its start will then fail. Throws as torch_search_path() does.
void lead_to_torch(const std::string& worker, EnvironmentList& environment);

}  // namespace dslaunch::launch
