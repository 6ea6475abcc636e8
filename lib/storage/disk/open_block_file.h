// Chooses the engine of a block file among the engines that the machine has.
#pragma once

#include <memory>
#include <string_view>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

// The ways to transfer data; kAuto is the best one that the machine has.
enum class IoEngine { kAuto, kUring, kThreads };

// Reads "auto", "io_uring" or "threads". Throws Error{kConfig} on anything else.
[[nodiscard]] IoEngine parse_io_engine(std::string_view name);
// Returns the word that parse_io_engine() reads.
[[nodiscard]] const char* io_engine_name(IoEngine engine);

// Opens FILES with ENGINE. kAuto means io_uring, or threads if the machine has no io_uring or
// forbids it; the reason is logged. Throws Error{kSetup} if io_uring was asked for by name and
// cannot be used, or if the threads cannot be started. FILES must outlive the result.
[[nodiscard]] std::unique_ptr<BlockFile> open_block_file(const BackingFiles& files, IoEngine engine,
                                                         const QueueLimits& limits);

// Open FILES with one engine. The thread engine uses pread and pwrite, for machines that forbid
// io_uring, and throws std::system_error if its threads cannot be started. The io_uring engine
// returns null, with a negative errno in ERROR_NUMBER, if this machine has no io_uring or forbids
// it. FILES must outlive the result.
[[nodiscard]] std::unique_ptr<BlockFile> open_thread_file(const BackingFiles& files,
                                                          const QueueLimits& limits);
[[nodiscard]] std::unique_ptr<BlockFile> open_uring_file(const BackingFiles& files,
                                                         const QueueLimits& limits,
                                                         int& error_number);

}  // namespace dslaunch::storage
