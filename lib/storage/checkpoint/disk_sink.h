// A file whose writes bypass the page cache: bytes are copied into aligned buffers, and threads of
// the sink write one buffer while the next is filled. Blocks on the disk while all buffers are
// being written. One owner.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/machine/small_thread.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/disk/io_arena.h"

namespace dslaunch::storage {

// The limits of one sink. Its buffers take at most 6 MiB of memory.
inline constexpr int64_t kSinkBufferBytes = int64_t{2} << 20;
inline constexpr size_t kSinkBuffers = 3;
inline constexpr size_t kSinkThreads = 2;

// A file that is being written, in the file tree of disk_tree.cpp.
class DiskSink final : public FileSink {
  public:
    // FD is the new file PATH; reserves BYTES in it. Throws Error{kDisk}.
    DiskSink(std::string path, UniqueFd fd, Bytes bytes);
    ~DiskSink() override;
    void write(std::span<const std::byte> bytes) override;
    void sync() override;
    // Returns the memory that a sink for BYTES uses while it is open.
    [[nodiscard]] static Bytes memory(Bytes bytes);

  private:
    struct Piece {
        size_t buffer = 0;
        int64_t offset_bytes = 0;
        size_t length_bytes = 0;
    };
    void run();
    [[nodiscard]] int write_piece(const Piece& piece);
    void send();
    void await_all();
    [[nodiscard]] std::span<std::byte> buffer(size_t index) const;
    [[noreturn]] void give_up(const char* doing, int error_number) const;

    std::string path_;
    UniqueFd fd_;
    Bytes need_;
    int64_t written_bytes_ = 0;  // the number of bytes that the threads have got
    IoArena arena_;
    size_t filling_ = 0;  // index of the buffer that is being filled
    size_t filled_bytes_ = 0;
    bool is_synced_ = false;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> queue_;  // at most kSinkBuffers pieces
    std::array<bool, kSinkBuffers> busy_{};
    int error_number_ = 0;  // errno of the first failure; 0 if none
    bool is_stopping_ = false;
    std::vector<SmallThread> threads_;  // started with the first full buffer
};

}  // namespace dslaunch::storage
