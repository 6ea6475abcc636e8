#include "server/http/answer_threads.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace dslaunch::server {

namespace {

// The stack size of an answering thread, set here so that it does not depend on `ulimit -s`. It is
// enough to render the deepest template.
constexpr size_t kAnswerStackBytes = size_t{8} << 20;

// Errors of logging are ignored, because they must not end the server.
void warn_of_threads(size_t threads, const char* why) noexcept {
    try {
        log_warn("serve",
                 "cannot start more than {} threads that answer requests: {}. Further requests "
                 "wait; raise the limit of processes (ulimit -u)",
                 threads, why);
    } catch (const std::exception&) {
    }
}

}  // namespace

AnswerThreads::AnswerThreads(size_t threads_max, std::function<void(Connection&)> answer,
                             std::function<void()> wake)
    : answer_(std::move(answer)), wake_(std::move(wake)) {
    threads_.reserve(threads_max);
}

void AnswerThreads::start() {
    threads_.emplace_back([this] { work(); }, kAnswerStackBytes);
}

void AnswerThreads::hand_over(Connections& list, Connection& connection) {
    ++answering_;
    bool is_short = false;
    {
        const std::lock_guard lock(mutex_);
        ready_.splice(ready_.end(), list, connection.self);
        is_short = ready_.size() > waiting_;
    }
    changed_.notify_one();
    if (!is_short || threads_.size() == threads_.capacity()) return;
    try {
        threads_.emplace_back([this] { work(); }, kAnswerStackBytes);
        is_short_of_threads_ = false;
    } catch (const std::exception& error) {
        // The existing threads answer the request later.
        if (!std::exchange(is_short_of_threads_, true))
            warn_of_threads(threads_.size(), error.what());
    }
}

Connections AnswerThreads::take_back() {
    Connections back;
    {
        const std::lock_guard lock(mutex_);
        back.swap(returned_);
    }
    answering_ -= back.size();
    return back;
}

void AnswerThreads::end() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    changed_.notify_all();
    threads_.clear();
}

// Answers requests, one at a time, until the end.
void AnswerThreads::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++waiting_;
        changed_.wait(lock, [&] { return !ready_.empty() || is_over_; });
        --waiting_;
        if (ready_.empty()) return;
        Connections mine;
        mine.splice(mine.end(), ready_, ready_.begin());
        lock.unlock();
        answer_(mine.front());
        lock.lock();
        returned_.splice(returned_.end(), mine);
        wake_();
    }
}

}  // namespace dslaunch::server
