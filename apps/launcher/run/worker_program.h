// dsworker, the program with LibTorch in it: whether it is there, and going on as it.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// Throws Error{kSetup} when the dsworker at PATH cannot be started.
void require_worker(const std::string& path);

// Goes on as `dsworker WORDS…`, the one beside this dslaunch; WORDS begin with the role. Never
// returns; throws Error{kSetup} when it cannot be started.
[[noreturn]] void become_worker(std::span<const std::string> words);

}  // namespace dslaunch::launcher
