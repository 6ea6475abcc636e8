#include "runtime/train/heartbeat.h"

namespace dslaunch::runtime {

HeartbeatSender::HeartbeatSender(Reporter& reporter, Duration interval,
                                 std::function<launch::Heartbeat()> where)
    : reporter_(reporter),
      interval_(interval),
      where_(std::move(where)),
      thread_([this] { send_until_stopped(); }) {}

HeartbeatSender::~HeartbeatSender() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void HeartbeatSender::send_until_stopped() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
        lock.unlock();
        reporter_.heartbeat(where_());
        lock.lock();
        changed_.wait_for(lock, interval_, [this] { return stopping_; });
    }
}

}  // namespace dslaunch::runtime
