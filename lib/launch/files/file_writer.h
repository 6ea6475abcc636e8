// Writes to files on its own thread: a disk that does not answer, or a FIFO that nobody reads,
// blocks only that thread. The thread that pings the hosts continues. The queue is bounded: beyond
// kKeptBytesMax new work is dropped, counted and reported; no caller ever waits for room. Data
// path: output of the ranks -> queue -> files. One thread uses an object; the work runs on the
// object's own thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// A queue of work, and the thread that does it.
class FileWriter {
  public:
    // A unit of work; it returns 0 or a negative errno. It owns everything that it uses, since it
    // may still be running, blocked by the disk, when this object no longer exists.
    using Work = std::function<int()>;

    static constexpr size_t kKeptBytesMax = 64U << 20;
    // The bytes of memory that a queued unit of work needs in addition to its text: the closure,
    // the heap block of a small text, the queue entry. They count towards kKeptBytesMax.
    static constexpr size_t kWorkBytes = 256;
    static constexpr std::chrono::milliseconds kStandsStill{5'000};

    // PLACE: the name of the folder in messages. The first post() starts the thread, with all
    // signals blocked, and throws Error{kSetup} if no thread can be created.
    explicit FileWriter(std::string place);
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;
    // Drops queued work; call wait() first.
    ~FileWriter();

    // Queues WORK, which keeps BYTES bytes in memory; never waits. Work is done in the order of the
    // calls. Returns false if the queue is full; WORK is then dropped. Work with BYTES 0 is never
    // dropped, so the caller must not queue an unlimited number of such works.
    bool post(Work work, size_t bytes);
    // Returns the errno of the first work that failed. Returns 0 if no work has failed, or if an
    // earlier call has returned this errno.
    [[nodiscard]] int take_failure();
    // Returns one line if the disk does not answer, or if work was lost because the queue was full;
    // empty if there is no news. Each line is returned only once.
    [[nodiscard]] std::string take_news();
    // Waits until everything is written, and returns true. Returns false if nothing was written for
    // STANDSTILL_MAX, if the wait takes longer than ALL_MAX, or if WAKE_FD (-1: none) becomes
    // readable.
    [[nodiscard]] bool wait(std::chrono::milliseconds standstill_max, int wake_fd = -1,
                            std::chrono::milliseconds all_max = std::chrono::hours(24));
    // Does WORK on the thread, after all work that is queued, and waits until it is done. Rethrows
    // an Error of WORK. Throws Error{kInterrupted} if WAKE_FD becomes readable first; its message
    // contains DOING, such as "FILES were being opened". WORK then still runs, so it must own all
    // that it uses.
    void run_and_wait(const std::function<void()>& work, int wake_fd, std::string_view doing);
    // Returns the bytes that queued work keeps in memory.
    [[nodiscard]] size_t kept_bytes() const;

  private:
    struct Queue;
    std::string place_;
    std::shared_ptr<Queue> queue_;
    bool has_told_standstill_ = false;
};

}  // namespace dslaunch::launch
