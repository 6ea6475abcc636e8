// Ends the process if a mapped file cannot be read (SIGBUS): one line on stderr names program, file
// and offset, and the exit code is one of ours. A signal handler cannot throw, and pointers read
// the mapping everywhere, tensors included, so that pread() would mean a copy of everything. The
// handler is the process's own and set with the first mapping; an access outside of all watched
// mappings goes to the handler that was there before. Threads: any.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/error.h"

namespace dslaunch::storage {

// Watches BYTES, not empty, which are mapped from PATH, until unwatch_mapping(), which comes before
// they are unmapped. CODE: the process's exit code then. Beyond 16,384 mappings they are not
// watched: the signal then ends the process as it would without this.
void watch_mapping(std::span<const std::byte> bytes, const std::string& path, ExitCode code);
// Changes the code of a watched mapping. BYTES: all of it; empty ones are allowed.
void set_fault_code(std::span<const std::byte> bytes, ExitCode code) noexcept;
void unwatch_mapping(std::span<const std::byte> bytes) noexcept;

}  // namespace dslaunch::storage
