// Chooses the engine of a block file by what the machine allows.
#pragma once

#include <memory>
#include <string_view>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

enum class IoEngine { kAuto, kUring, kThreads };

// "auto", "io_uring", "threads". Throws Error{kConfig} on anything else.
[[nodiscard]] IoEngine parse_io_engine(std::string_view name);
[[nodiscard]] const char* io_engine_name(IoEngine engine);

// kAuto: io_uring, or threads where the machine has or allows none, which is logged with the
// reason. Throws Error{kSetup}: io_uring was asked for by name and cannot be had, or threads are
// refused. FILES must outlive the result.
[[nodiscard]] std::unique_ptr<BlockFile> open_block_file(const BackingFiles& files, IoEngine engine,
                                                         const QueueLimits& limits);

// Each engine by itself: pread and pwrite in threads, for machines that forbid io_uring, which
// throws std::system_error if threads are refused; and io_uring, null with a negative errno in
// ERROR_NUMBER where this machine has or allows none. FILES must outlive the result.
[[nodiscard]] std::unique_ptr<BlockFile> open_thread_file(const BackingFiles& files,
                                                          const QueueLimits& limits);
[[nodiscard]] std::unique_ptr<BlockFile> open_uring_file(const BackingFiles& files,
                                                         const QueueLimits& limits,
                                                         int& error_number);

}  // namespace dslaunch::storage
