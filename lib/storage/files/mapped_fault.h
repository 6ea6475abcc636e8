// Ends the process if a mapped file cannot be read (SIGBUS): one line on stderr names program, file
// and offset, and the exit code is one of dslaunch's. A signal handler cannot throw. Mappings are
// used because tensors and other code read the data through pointers; pread() would need a copy of
// everything. The handler is set for the whole process, with the first mapping. Faults outside all
// watched mappings are passed to the handler that was set before. Threads: any.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/error.h"

namespace dslaunch::storage {

// Watches BYTES, which are mapped from PATH, until unwatch_mapping() is called. REQUIRES: BYTES are
// not empty; unwatch_mapping() is called before they are unmapped. CODE is the exit code of the
// process after a fault. If 16,384 mappings are watched already, BYTES are not watched: a fault in
// them goes to the earlier signal handler.
void watch_mapping(std::span<const std::byte> bytes, const std::string& path, ExitCode code);
// Changes the exit code for a watched mapping. BYTES must be the whole mapping; empty BYTES are
// ignored.
void set_fault_code(std::span<const std::byte> bytes, ExitCode code) noexcept;
// Ends the watch of a mapping that begins where BYTES begin.
void unwatch_mapping(std::span<const std::byte> bytes) noexcept;

}  // namespace dslaunch::storage
