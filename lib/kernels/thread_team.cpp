#include "kernels/thread_team.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::kernels {
namespace {

void rest() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

// Returns true as soon as READY() returns true, or false if it does not within SPIN.
template <typename F>
bool spin_until(std::chrono::nanoseconds spin, const F& ready) {
    if (ready()) return true;
    if (spin.count() == 0) return false;
    const auto end = std::chrono::steady_clock::now() + spin;
    constexpr int kLooks = 16;  // checks between two readings of the clock
    do {
        for (int i = 0; i < kLooks; ++i) {
            rest();
            if (ready()) return true;
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

// The stack size of a helper thread, whatever `ulimit -s` says: loops keep a few tiles on the
// stack.
constexpr size_t kHelperStackBytes = size_t{2} << 20;

}  // namespace

ThreadTeam::ThreadTeam(int threads, std::chrono::nanoseconds spin)
    : spin_(spin), places_(static_cast<size_t>(std::max(threads, 1) - 1)) {
    DSL_CHECK(threads >= 1, "a team cannot have {} threads", threads);
    try {
        for (int i = 1; i < threads; ++i)
            helpers_.emplace_back([this, i] { help(i); }, kHelperStackBytes);
    } catch (...) {
        end();
        throw;
    }
}

ThreadTeam::~ThreadTeam() {
    end();
}

void ThreadTeam::end() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    begun_.notify_all();
    helpers_.clear();
}

void ThreadTeam::for_parts(int64_t numel, const Work& work) {
    const int64_t blocks = (numel + kBlockNumel - 1) / kBlockNumel;
    const int64_t parts = std::min<int64_t>(blocks, threads());
    if (parts < 2) return work(0, numel);
    const auto part = [&](int64_t index) {
        const int64_t begin = blocks * index / parts * kBlockNumel;
        const int64_t end = std::min(blocks * (index + 1) / parts * kBlockNumel, numel);
        work(begin, end - begin);
    };
    const auto call = [](const void* f, int64_t index) {
        (*static_cast<decltype(&part)>(f))(index);
    };
    share({call, &part, parts}, true);
}

void ThreadTeam::share(const Loop& loop, bool each_its_own) {
    const int64_t helpers = std::min<int64_t>(loop.chunks, threads()) - 1;
    if (helpers < 1) {
        for (int64_t chunk = 0; chunk < loop.chunks; ++chunk) loop.call(loop.work, chunk);
        return;
    }
    loop_ = loop;
    each_its_own_ = each_its_own;
    next_.store(0, std::memory_order_relaxed);
    offer(helpers);
    run(0);
    if (!each_its_own) take_back(helpers);
    for (int64_t i = 0; i < helpers; ++i) await_end(places_[i]);
}

// Offers the loop to HELPERS helpers. No offer is missed: a helper counts itself as a sleeper
// before it checks its seat for the last time, and the caller fills the seats before it looks for
// sleepers. So either the helper sees the offer, or the caller sees the sleeper and wakes it.
void ThreadTeam::offer(int64_t helpers) {
    for (int64_t i = 0; i < helpers; ++i) places_[i].seat.store(Seat::kOffered);
    if (sleepers_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }
    begun_.notify_all();
}

void ThreadTeam::take_back(int64_t helpers) {
    for (int64_t i = 0; i < helpers; ++i) {
        Seat offered = Seat::kOffered;
        places_[i].seat.compare_exchange_strong(offered, Seat::kNone);
    }
}

void ThreadTeam::await_end(const Place& place) {
    const auto ended = [&] { return place.seat.load() == Seat::kNone; };
    if (spin_until(spin_, ended)) return;
    std::unique_lock lock(mutex_);
    caller_sleeps_ = true;
    done_.wait(lock, ended);
    caller_sleeps_ = false;
}

bool ThreadTeam::await_offer(const Place& place) {
    const auto called = [&] { return place.seat.load() == Seat::kOffered || ending_.load(); };
    if (!spin_until(spin_, called)) {
        std::unique_lock lock(mutex_);
        ++sleepers_;
        begun_.wait(lock, called);
        --sleepers_;
    }
    return !ending_.load();
}

void ThreadTeam::run(int64_t thread) {
    if (each_its_own_) return loop_.call(loop_.work, thread);
    for (;;) {
        const int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= loop_.chunks) return;
        loop_.call(loop_.work, chunk);
    }
}

void ThreadTeam::help(int64_t index) {
    Place& place = places_[index - 1];
    while (await_offer(place)) {
        Seat offered = Seat::kOffered;
        if (!place.seat.compare_exchange_strong(offered, Seat::kTaken)) continue;
        run(index);
        place.seat.store(Seat::kNone);
        if (!caller_sleeps_.load()) continue;
        { const std::lock_guard lock(mutex_); }
        done_.notify_one();
    }
}

}  // namespace dslaunch::kernels
