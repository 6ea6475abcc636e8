// A program of this machine as a stream: its stdin and stdout are one socket here, its stderr is
// ours. Never blocks but for its end; one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace dslaunch::launch {

class ChildStream {
  public:
    // Starts it with our environment. Throws Error{kSetup} when that fails.
    explicit ChildStream(const std::vector<std::string>& command);
    ChildStream(const ChildStream&) = delete;
    ChildStream& operator=(const ChildStream&) = delete;
    // Closes its stdin and stdout, which is how an agent is told to end; does not wait for it.
    ~ChildStream() = default;

    [[nodiscard]] int fd() const { return socket_.get(); }  // -1: it has ended
    [[nodiscard]] bool wants_to_write() const { return sent_ < outbox_.size(); }
    void send(std::string_view bytes);  // queues what does not go at once
    void flush();
    void close_input();  // after what is queued
    // Some bytes of its stdout; empty: none now, or it has ended (fd() is -1 then).
    [[nodiscard]] std::string read_some();
    // REQUIRES: fd() is -1. Its exit status, 128+n for a signal; -1 when it does not end within
    // half a second, it is killed then.
    [[nodiscard]] int take_status();

  private:
    pid_t pid_ = -1;
    UniqueFd socket_;
    std::string outbox_;
    size_t sent_ = 0;
    bool close_when_sent_ = false;
};

}  // namespace dslaunch::launch
