// A mapped file that cannot be read where it is touched (SIGBUS) ends the process: one line on
// stderr names program, file and offset, and the code is one of ours. Nothing can be thrown from
// there, and the mapping is read by pointers all over, tensors included, so that reading with
// pread() instead would be a copy of all of it. The handler is the process's own and set with the
// first mapping; an access that belongs to no watched mapping goes to the handler that was there
// before. Threads: any.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/error.h"

namespace dslaunch::storage {

// BYTES, not empty, are mapped from PATH until unwatch_mapping(), which comes before they are
// unmapped. CODE: that the process then ends with. Beyond 16,384 mappings they are not watched: the
// signal then ends the process as it does without this.
void watch_mapping(std::span<const std::byte> bytes, const std::string& path, ExitCode code);
// Another code for a mapping that is watched. BYTES: all of it; empty ones are well.
void set_fault_code(std::span<const std::byte> bytes, ExitCode code) noexcept;
void unwatch_mapping(std::span<const std::byte> bytes) noexcept;

}  // namespace dslaunch::storage
