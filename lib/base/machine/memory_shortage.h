// Tells a shortage of memory from other failures, so that the message does not blame a bad model or
// a bug of ours. Pure.
#pragma once

#include <exception>
#include <string>

namespace dslaunch {

// Returns true for std::bad_alloc; for a std::system_error of ENOMEM, or of EAGAIN, which a thread
// without room for its stack gives; and for LibTorch's allocators, known by their words.
[[nodiscard]] bool is_memory_shortage(const std::exception& error);

// Returns the message of Error{kSetup} for such an error: the first line of REASON, and what to do.
[[nodiscard]] std::string memory_shortage_text(const std::string& reason);

}  // namespace dslaunch
