// The threads of one rank that share a long loop over flat arrays: the caller and helpers that
// block in between, never spin. They run on the processors that the team's maker may use (ranks
// that share a host have their own, apps/worker/train.cpp). Data path: optimizer state ->
// thread team -> flat kernels. Threads: for_parts by one thread at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dslaunch::kernels {

class ThreadTeam {
  public:
    // THREADS in all, the caller among them. REQUIRES: at least 1.
    explicit ThreadTeam(int threads);
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;
    // REQUIRES: for_parts is not running.
    ~ThreadTeam();

    // WORK on [BEGIN, BEGIN + NUMEL), in elements; called by several threads at once. Must not
    // throw.
    using Work = std::function<void(int64_t begin, int64_t numel)>;
    // Cuts [0, numel) into one part for each thread, of whole blocks of kBlockNumel but for the
    // last one, and returns when WORK is done with all of them. What has fewer than two blocks is
    // the caller's.
    void for_parts(int64_t numel, const Work& work);
    static constexpr int64_t kBlockNumel = int64_t{16} * 1024;

    [[nodiscard]] int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  private:
    void help(int64_t index);
    void run_part(int64_t index) const;

    std::mutex mutex_;
    std::condition_variable begun_;
    std::condition_variable done_;
    const Work* work_ = nullptr;  // the work of the loop under way, whose numel and parts follow
    int64_t numel_ = 0;
    int64_t parts_ = 0;
    uint64_t loops_ = 0;  // begun since the start
    int64_t busy_ = 0;    // helpers that have not ended their part
    bool ending_ = false;
    std::vector<std::thread> helpers_;
};

}  // namespace dslaunch::kernels
