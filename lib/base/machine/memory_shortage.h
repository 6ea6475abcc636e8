// Distinguishes a shortage of memory from other failures, so that the message does not blame a bad
// model or a bug in this program. Pure.
#pragma once

#include <exception>
#include <string>

namespace dslaunch {

// Returns true for std::bad_alloc, for a std::system_error with ENOMEM or EAGAIN, and for errors of
// LibTorch's allocators, recognized by their text. Starting a thread reports EAGAIN if there is no
// room for its stack.
[[nodiscard]] bool is_memory_shortage(const std::exception& error);

// Returns the message of Error{kSetup} for a shortage of memory: the first line of REASON, and what
// to do.
[[nodiscard]] std::string memory_shortage_text(const std::string& reason);

}  // namespace dslaunch
