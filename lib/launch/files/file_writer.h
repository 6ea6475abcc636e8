// Writes to files on its own thread: a disk that stands still, or a FIFO that nobody reads, holds
// up that thread and not the one that pings the hosts. The waiting work is bounded: beyond
// kKeptBytesMax new work is dropped, counted and reported; nobody ever waits for room. Data path:
// words of the ranks -> queue -> files. One thread uses an object; the work runs on another.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace dslaunch::launch {

class FileWriter {
  public:
    // A work returns 0 or a negative errno. It owns everything that it touches, since it may still
    // run, held by the disk, when this object is gone.
    using Work = std::function<int()>;

    static constexpr size_t kKeptBytesMax = 64U << 20;
    // The part of kKeptBytesMax that each waiting work costs itself: its closure, a small text's
    // block, its place in the queue.
    static constexpr size_t kWorkBytes = 256;
    static constexpr std::chrono::milliseconds kStandsStill{5'000};

    // PLACE: the folder that messages name. The first post() starts the thread, with all signals
    // blocked, and throws Error{kSetup} if no thread is left.
    explicit FileWriter(std::string place);
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;
    // Drops queued work; call wait() before.
    ~FileWriter();

    // Queues WORK, which holds BYTES; never waits. Work is done in the order of the calls. Returns
    // false if the queue is full and WORK is dropped. Work that holds no bytes is never dropped:
    // whoever posts it bounds it.
    bool post(Work work, size_t bytes);
    // Returns the errno of the first failed work, once; 0: no failure, or returned before.
    [[nodiscard]] int take_failure();
    // Returns one line about a disk that stands still, or that lost work because it stood still,
    // each once; empty: there is no news.
    [[nodiscard]] std::string take_news();
    // Waits until all is written (returns true), until nothing was written for STANDSTILL_MAX, or
    // until WAKE_FD is readable. A WAKE_FD of -1 never is.
    [[nodiscard]] bool wait(std::chrono::milliseconds standstill_max, int wake_fd = -1);
    // Returns the bytes that queued works still hold.
    [[nodiscard]] size_t kept_bytes() const;

  private:
    struct Queue;
    std::string place_;
    std::shared_ptr<Queue> queue_;
    bool told_standstill_ = false;
};

}  // namespace dslaunch::launch
