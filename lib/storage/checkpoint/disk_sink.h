// A file that is written past the page cache: bytes are copied into aligned buffers, and threads of
// the sink write each one while the next is filled. Blocks on the disk while all buffers are being
// written. One owner.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/small_thread.h"
#include "storage/checkpoint/file_tree.h"
#include "storage/disk/io_arena.h"

namespace dslaunch::storage {

struct FileFailure {
    std::string path;
    std::string_view doing;  // "write", "make the folder"
    int error_number = 0;
    Bytes need;  // the whole file's bytes; 0: they are not mentioned
    Bytes free;  // bytes free where PATH lies; mentioned on a full disk
};

// Throws Error{kDisk}: path, operation, cause, what to do; bytes on a full disk.
[[noreturn]] void fail_file(const FileFailure& failure);

// The limits of one sink: its pieces take 6 MiB of memory at most.
inline constexpr int64_t kSinkBufferBytes = int64_t{2} << 20;
inline constexpr size_t kSinkBuffers = 3;
inline constexpr size_t kSinkThreads = 2;

class DiskSink final : public FileSink {
  public:
    // FD belongs to PATH, a file just made, and gets room for BYTES. Throws Error{kDisk}.
    DiskSink(std::string path, UniqueFd fd, Bytes bytes);
    ~DiskSink() override;
    void write(std::span<const std::byte> bytes) override;
    void sync() override;
    // Returns the memory that a sink for BYTES takes while it is open.
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
    int64_t written_bytes_ = 0;  // handed on to the threads
    IoArena arena_;
    size_t filling_ = 0;  // buffer
    size_t filled_bytes_ = 0;
    bool synced_ = false;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> queue_;  // kSinkBuffers at most
    std::array<bool, kSinkBuffers> busy_{};
    int error_number_ = 0;  // the first
    bool stop_ = false;
    std::vector<SmallThread> threads_;  // started with the first full buffer
};

}  // namespace dslaunch::storage
