// A want of memory is told from other failures here: whoever has too little of it is told so, not
// that a model is bad or that we have a bug. Pure.
#pragma once

#include <exception>
#include <string>

namespace dslaunch {

// std::bad_alloc; a std::system_error of ENOMEM, or of EAGAIN, which is what a thread without room
// for its stack gives; the allocators of LibTorch, known by their words.
[[nodiscard]] bool is_memory_shortage(const std::exception& error);

// The message of Error{kSetup} for such an error: the first line of REASON, and what to do.
[[nodiscard]] std::string memory_shortage_text(const std::string& reason);

}  // namespace dslaunch
