// The threads of one rank that share a long loop over flat arrays, or the many short loops of a
// generated token: the caller and its helpers. A helper that waits for the next loop spins for a
// bounded time, and then blocks. The threads run on the processors that the team's creator may use
// (ranks that share a host have separate processors, apps/worker/train/train.cpp). Data path:
// optimizer state -> thread team -> flat kernels; activations -> thread team -> products. Threads:
// for_parts and for_chunks by one thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "base/machine/small_thread.h"

namespace dslaunch::kernels {

// A team of threads: the caller of its functions, and helpers that end with the team.
class ThreadTeam {
  public:
    // Creates a team of THREADS threads, including the caller. SPIN is the time for which a waiting
    // thread spins before it blocks: a helper waits for the next loop, the caller for the end of
    // the current loop. While helpers spin, a loop begins within about a microsecond. If SPIN is 0,
    // threads block at once. REQUIRES: THREADS is at least 1.
    explicit ThreadTeam(int threads, std::chrono::nanoseconds spin = {});
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;
    // REQUIRES: no loop is running.
    ~ThreadTeam();

    // The work on elements [BEGIN, BEGIN + NUMEL). Several threads call it at once. It must not
    // throw.
    using Work = std::function<void(int64_t begin, int64_t numel)>;
    // Divides [0, numel) into one part per thread and calls WORK for each part. Returns when all
    // calls are done. All parts consist of whole blocks of kBlockNumel elements, except the last
    // one. If there is at most one block, the calling thread does all the work.
    void for_parts(int64_t numel, const Work& work);
    static constexpr int64_t kBlockNumel = int64_t{16} * 1024;

    // Calls WORK(chunk) once for every chunk in [0, chunks), each on whichever thread is free, and
    // returns when all calls are done. A helper that has not begun when the last chunk is taken
    // gets no work, and this function does not wait for it: another program may occupy its
    // processor. WORK must not throw.
    template <typename F>
    void for_chunks(int64_t chunks, F&& work) {
        auto& object = work;
        using Object = std::remove_reference_t<decltype(object)>;
        share({[](const void* f, int64_t chunk) {
                   (*static_cast<Object*>(const_cast<void*>(f)))(chunk);
               },
               static_cast<const void*>(&object), chunks},
              false);
    }

    // Returns the number of threads, including the caller.
    [[nodiscard]] int threads() const { return static_cast<int>(helpers_.size()) + 1; }
    // The SPIN for loops that follow each other within one token.
    static constexpr std::chrono::microseconds kTokenSpin{200};

  private:
    struct Loop {
        void (*call)(const void* work, int64_t chunk) = nullptr;
        const void* work = nullptr;
        int64_t chunks = 0;
    };
    // The state of a helper's seat. The caller offers a loop; the helper takes it and sets kNone at
    // its end. The caller may withdraw an offer that the helper has not taken.
    enum class Seat : uint8_t { kNone, kOffered, kTaken };
    struct alignas(64) Place {
        std::atomic<Seat> seat{Seat::kNone};
    };

    // If EACH_ITS_OWN is true, thread i runs chunk i; otherwise each thread takes the next free
    // chunk.
    void share(const Loop& loop, bool each_its_own);
    void offer(int64_t helpers);
    void take_back(int64_t helpers);
    void await_end(const Place& place);
    void help(int64_t index);
    [[nodiscard]] bool await_offer(const Place& place);
    void run(int64_t thread);
    void end();

    std::chrono::nanoseconds spin_;
    Loop loop_;  // the current loop; changes only while no seat is taken or offered
    bool each_its_own_ = false;
    alignas(64) std::atomic<int64_t> next_{0};  // the first chunk that no thread has taken
    std::vector<Place> places_;                 // one for each helper
    std::atomic<int64_t> sleepers_{0};          // helpers that are blocked, or about to be
    std::atomic<bool> caller_sleeps_{false};
    std::atomic<bool> ending_{false};
    std::mutex mutex_;  // guards only the moment between the last check and blocking
    std::condition_variable begun_;
    std::condition_variable done_;
    std::vector<SmallThread> helpers_;
};

}  // namespace dslaunch::kernels
