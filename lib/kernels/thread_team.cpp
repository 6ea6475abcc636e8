#include "kernels/thread_team.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::kernels {

ThreadTeam::ThreadTeam(int threads) {
    DSL_CHECK(threads >= 1, "a team of {}", threads);
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(i); });
}

ThreadTeam::~ThreadTeam() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    begun_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void ThreadTeam::for_parts(int64_t numel, const Work& work) {
    const int64_t blocks = (numel + kBlockNumel - 1) / kBlockNumel;
    const int64_t parts = std::min<int64_t>(blocks, threads());
    if (parts < 2) return work(0, numel);
    {
        const std::lock_guard lock(mutex_);
        work_ = &work;
        numel_ = numel;
        parts_ = parts;
        busy_ = std::ssize(helpers_);
        ++loops_;
    }
    begun_.notify_all();
    run_part(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
}

// The work's members do not change before every helper has ended its part.
void ThreadTeam::run_part(int64_t index) const {
    if (index >= parts_) return;
    const int64_t blocks = (numel_ + kBlockNumel - 1) / kBlockNumel;
    const int64_t begin = blocks * index / parts_ * kBlockNumel;
    const int64_t end = std::min(blocks * (index + 1) / parts_ * kBlockNumel, numel_);
    (*work_)(begin, end - begin);
}

void ThreadTeam::help(int64_t index) {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0;; seen = loops_) {
        begun_.wait(lock, [&] { return ending_ || loops_ != seen; });
        if (ending_) return;
        lock.unlock();
        run_part(index);
        lock.lock();
        if (--busy_ == 0) done_.notify_one();
    }
}

}  // namespace dslaunch::kernels
