// dsworker, the program with LibTorch: the check that it is there, and running it in place of this
// process.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// Throws Error{kSetup} when the dsworker at PATH cannot be started.
void require_worker(const std::string& path);

// Replaces this process by `dsworker WORDS…`, the program beside this dslaunch; WORDS begin with
// the role. Never returns; throws Error{kSetup} if dsworker cannot be started.
[[noreturn]] void become_worker(std::span<const std::string> words);

}  // namespace dslaunch::launcher
