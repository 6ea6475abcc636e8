#include "runtime/health/health_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::runtime {

HealthWatch::HealthWatch(Duration whole, std::function<void(const std::string&)> on_late)
    : on_late_(std::move(on_late)),
      whole_(whole),
      whole_deadline_(SystemClock().now() + whole),
      step_deadline_(whole_deadline_),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void HealthWatch::enter(const std::string& where, Duration limit) {
    const std::lock_guard lock(mutex_);
    where_ = where;
    limit_ = limit;
    step_deadline_ = SystemClock().now() + limit;
    ++steps_;
    changed_.notify_all();
}

std::string HealthWatch::where() const {
    const std::lock_guard lock(mutex_);
    return where_;
}

uint64_t HealthWatch::steps_done() const {
    const std::lock_guard lock(mutex_);
    return steps_;
}

void HealthWatch::watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
        const TimePoint now = SystemClock().now();
        if (now >= whole_deadline_ || now >= step_deadline_) {
            const bool whole = now >= whole_deadline_;
            const std::string why =
                fmt::format("{} took longer than {:.0f} s{}", whole ? "the check" : where_,
                            to_milliseconds(whole ? whole_ : limit_) / 1000,
                            whole ? fmt::format("; this rank was at: {}", where_) : "");
            lock.unlock();
            on_late_(why);
            return;
        }
        const uint64_t seen = steps_;
        changed_.wait_until(lock, stop, std::min(whole_deadline_, step_deadline_),
                            [&] { return steps_ != seen; });
    }
}

}  // namespace dslaunch::runtime
