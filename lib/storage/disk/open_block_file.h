// Chooses the engine of a block file among the engines of the machine.
#pragma once

#include <memory>
#include <string_view>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

enum class IoEngine { kAuto, kUring, kThreads };

// Reads "auto", "io_uring" or "threads". Throws Error{kConfig} on anything else.
[[nodiscard]] IoEngine parse_io_engine(std::string_view name);
[[nodiscard]] const char* io_engine_name(IoEngine engine);

// Opens FILES with ENGINE. kAuto means io_uring, or threads if the machine has or allows none,
// which is logged with the reason. Throws Error{kSetup} if io_uring was asked for by name and is
// not there, or if threads are refused. FILES must outlive the result.
[[nodiscard]] std::unique_ptr<BlockFile> open_block_file(const BackingFiles& files, IoEngine engine,
                                                         const QueueLimits& limits);

// Open one engine. Threads use pread and pwrite, for machines that forbid io_uring, and throw
// std::system_error if threads are refused. io_uring returns null with a negative errno in
// ERROR_NUMBER if this machine has or allows none. FILES must outlive the result.
[[nodiscard]] std::unique_ptr<BlockFile> open_thread_file(const BackingFiles& files,
                                                          const QueueLimits& limits);
[[nodiscard]] std::unique_ptr<BlockFile> open_uring_file(const BackingFiles& files,
                                                         const QueueLimits& limits,
                                                         int& error_number);

}  // namespace dslaunch::storage
