// The part that the local and the openssh transport share: each host is a child process with pipes.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/process/line_splitter.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

class ProcessTransport : public Transport {
  public:
    ~ProcessTransport() override;  // ends what still runs, within a second
    void start(const std::vector<HostAddress>& hosts) override;
    void send(size_t host, std::string_view bytes) override;
    void close_input(size_t host) override;
    void abandon(size_t host) override;
    [[nodiscard]] size_t add(const HostAddress& host) override;
    void hold(size_t host, bool held) override { children_[host].held = held; }
    [[nodiscard]] std::vector<TransportEvent> wait(std::chrono::milliseconds timeout,
                                                   int wake_fd) override;

  protected:
    // The command that is executed for a host.
    [[nodiscard]] virtual std::vector<std::string> command(const HostAddress& host) const = 0;
    // The kEnded of a host: the cause in words, made from the child's last lines on stderr and its
    // status.
    [[nodiscard]] virtual TransportEvent describe_end(
        size_t host, int status, const std::deque<std::string>& stderr_lines) const = 0;
    // The descriptor that the agent of host INDEX gives rank 0 as its stdin, -1: none.
    [[nodiscard]] virtual int worker_stdin(size_t index) const {
        static_cast<void>(index);
        return -1;
    }
    // True: the child gets no terminal, on which it could ask.
    [[nodiscard]] virtual bool leaves_terminal() const { return false; }
    // True: this end is worth another attempt (before the first byte arrived).
    [[nodiscard]] virtual bool may_retry(int status,
                                         const std::deque<std::string>& stderr_lines) const = 0;

  private:
    struct Child {
        HostAddress host;
        pid_t pid = -1;
        UniqueFd input;
        UniqueFd output;
        UniqueFd diagnostics;
        std::string outbox;
        bool close_when_sent = false;
        bool abandoned = false;
        bool ended = false;
        bool spoke = false;  // bytes arrived
        bool held = false;
        int attempts = 0;
        std::optional<std::chrono::steady_clock::time_point> retry_at;
        std::string sent_before;  // to be sent again after a retry
        LineSplitter lines;
        std::deque<std::string> stderr_lines;
    };

    void spawn_child(size_t index, std::vector<TransportEvent>& events);
    void flush(Child& child);
    void read_from(size_t index, bool from_stdout, std::vector<TransportEvent>& events);
    void take_lines(size_t index, const std::string& lines, std::vector<TransportEvent>& events);
    void reap(size_t index, std::vector<TransportEvent>& events);
    void retry_due(std::vector<TransportEvent>& events);
    [[nodiscard]] int poll_timeout(std::chrono::milliseconds timeout) const;

    std::vector<Child> children_;
    std::vector<TransportEvent> early_events_;  // events of start(), which the next wait() returns
};

}  // namespace dslaunch::launch
