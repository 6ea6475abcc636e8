// The threads of one rank that share a long loop over flat arrays, or the many short ones of a
// generated token: the caller and helpers that wait for the next loop, blocked or, for a bounded
// time, spinning. They run on the processors that the team's maker may use (ranks that share a host
// have their own, apps/worker/train.cpp). Data path: optimizer state -> thread team -> flat
// kernels; activations -> thread team -> products. Threads: for_parts and for_chunks by one thread
// at a time.
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

#include "base/small_thread.h"

namespace dslaunch::kernels {

class ThreadTeam {
  public:
    // THREADS in all, the caller among them. SPIN: how long a helper looks for the next loop, and
    // the caller for the end of this one, before they block; a loop then begins within about a
    // microsecond. 0: they block at once. REQUIRES: at least 1 thread.
    explicit ThreadTeam(int threads, std::chrono::nanoseconds spin = {});
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;
    // REQUIRES: no loop is running.
    ~ThreadTeam();

    // WORK on [BEGIN, BEGIN + NUMEL), in elements; called by several threads at once. Must not
    // throw.
    using Work = std::function<void(int64_t begin, int64_t numel)>;
    // Cuts [0, numel) into one part for each thread, of whole blocks of kBlockNumel but for the
    // last one, and returns when WORK is done with all of them. What has fewer than two blocks is
    // the caller's.
    void for_parts(int64_t numel, const Work& work);
    static constexpr int64_t kBlockNumel = int64_t{16} * 1024;

    // Calls WORK(chunk) for every chunk in [0, chunks), each once, on any free thread, and returns
    // when all are done. It does not wait for a late helper (whose processor is another program's)
    // when nothing is left to do. WORK must not throw.
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

    [[nodiscard]] int threads() const { return static_cast<int>(helpers_.size()) + 1; }
    // The SPIN for loops that follow each other within a token.
    static constexpr std::chrono::microseconds kTokenSpin{200};

  private:
    struct Loop {
        void (*call)(const void* work, int64_t chunk) = nullptr;
        const void* work = nullptr;
        int64_t chunks = 0;
    };
    // The caller offers a loop; the helper takes it and sets kNone at its end; the caller may
    // withdraw an offer that nobody took.
    enum class Seat : uint8_t { kNone, kOffered, kTaken };
    struct alignas(64) Place {
        std::atomic<Seat> seat{Seat::kNone};
    };

    // EACH_ITS_OWN: thread i takes chunk i.
    void share(const Loop& loop, bool each_its_own);
    void offer(int64_t helpers);
    void take_back(int64_t helpers);
    void await_end(const Place& place);
    void help(int64_t index);
    [[nodiscard]] bool await_offer(const Place& place);
    void run(int64_t thread);
    void end();

    std::chrono::nanoseconds spin_;
    Loop loop_;  // the loop under way; changes while no seat is taken or offered
    bool each_its_own_ = false;
    alignas(64) std::atomic<int64_t> next_{0};  // the first chunk that nobody has
    std::vector<Place> places_;                 // of the helpers
    std::atomic<int64_t> sleepers_{0};          // helpers that are blocked, or about to be
    std::atomic<bool> caller_sleeps_{false};
    std::atomic<bool> ending_{false};
    std::mutex mutex_;  // nothing is guarded but the moment between a look and blocking
    std::condition_variable begun_;
    std::condition_variable done_;
    std::vector<SmallThread> helpers_;
};

}  // namespace dslaunch::kernels
