// The block file by pread and pwrite in a pool of threads: for machines that forbid io_uring.
// There are as many threads as pieces in flight, at most kThreadsMax.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"
#include "storage/disk/request_table.h"

namespace dslaunch::storage {

class ThreadBlockFile final : public BlockFile {
  public:
    static constexpr int kThreadsMax = 64;

    // FILES must outlive this object. Throws std::system_error when threads are refused.
    ThreadBlockFile(const BackingFiles& files, const QueueLimits& limits);
    ~ThreadBlockFile() override;

    void progress() override {}                             // the threads go on by themselves
    void register_memory(std::span<std::byte>) override {}  // pread has no such thing
    [[nodiscard]] Bytes capacity() const override { return files_.capacity; }
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const override {
        return files_.path_at(offset_bytes);
    }
    [[nodiscard]] BlockFileFacts facts() const override;

  protected:
    [[nodiscard]] uint32_t start(const IoRequest& request) override;
    [[nodiscard]] int64_t await_front(uint32_t entry, int64_t known_bytes) override;
    IoResult finish(uint32_t entry) override;
    void abandon(uint32_t entry) noexcept override;

  private:
    void serve();
    void stop();
    [[nodiscard]] int64_t move(const Piece& piece) const;

    const BackingFiles& files_;
    std::mutex mutex_;              // guards table_, watched_ and stopping_
    std::condition_variable work_;  // a piece may be started, or stopping_
    // A request is finished, or nothing is in flight; while watched_ also: a piece has moved.
    std::condition_variable progress_;
    RequestTable table_;
    bool watched_ = false;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace dslaunch::storage
