// A small thread that tells regularly where its rank is, so that a rank which others wait for can
// be named. Data path: trainer -> heartbeat -> reporter -> agent -> supervisor. It uses no
// collective, so it speaks while every lane is stuck. Made and destroyed by one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "launch/protocol/control.h"
#include "runtime/train/reporter.h"

namespace dslaunch::runtime {

class HeartbeatSender {
  public:
    // Sends WHERE() to REPORTER at once and then each INTERVAL. The sender's thread calls WHERE,
    // which must not block. Both must outlive this object.
    HeartbeatSender(Reporter& reporter, Duration interval,
                    std::function<launch::Heartbeat()> where);
    HeartbeatSender(const HeartbeatSender&) = delete;
    HeartbeatSender& operator=(const HeartbeatSender&) = delete;
    // Stops sending. Waits for a heartbeat that is being sent.
    ~HeartbeatSender();

  private:
    void send_until_stopped();

    Reporter& reporter_;
    Duration interval_;
    std::function<launch::Heartbeat()> where_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopping_ = false;
    std::thread thread_;  // started last, when all that it reads is there
};

}  // namespace dslaunch::runtime
