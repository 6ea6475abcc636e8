// Agents on all hosts of a command (exec, hosts check, push): started through any Transport,
// greeted, spoken to by frames, ended together. Each host keeps its own error, and a bad one holds
// up no other. One thread: the caller's.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

class Fleet {
  public:
    using Time = std::chrono::steady_clock::time_point;
    struct Node {
        HostAddress address;
        bool greeted = false;        // its agent has said hello
        bool ended = false;          // its agent is gone, or given up
        bool misunderstood = false;  // what answered is no agent of this protocol
        std::string error;           // why it is bad, in words; empty: it is not
        int exit_status = -1;        // of its agent or of ssh, once it has ended by itself
        AgentHello hello;
        Time greeted_at;

        [[nodiscard]] bool serves() const { return greeted && !ended && error.empty(); }

      private:
        friend class Fleet;
        FrameDecoder frames{true};
        bool gone = false;
        Time last_byte;
        std::vector<std::string> diagnostics;
    };
    // Frames that Fleet does not take itself: everything but the hello, pong, gone and problems.
    using OnFrame = std::function<void(size_t host, const Frame& frame)>;

    // SIGNAL_FD: a signalfd with the signals that end a command. Both references must outlive this
    // object.
    Fleet(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd);
    void on_frame(OnFrame handler) { on_frame_ = std::move(handler); }

    // Starts all agents and waits until each has said hello or has failed, at most LIMIT: who has
    // not answered by then has an error. An agent of another protocol version is an error too.
    void connect(std::chrono::milliseconds limit, bool want_binary_hash);
    // Handles what happens until DONE() (true), DEADLINE or the end was asked for (false).
    bool pump(const std::function<bool()>& done, Time deadline);
    void send(size_t host, FrameKind kind, std::string payload = {});
    // Gives a host up, with the reason; its agent ends with everything that it started.
    void lose(size_t host, const std::string& cause);
    // Tells all agents to end what they started and then themselves, and waits for it, 11 s at
    // most; called before the object ends.
    void stop();

    // Ctrl-C or another signal that ends a command has come.
    [[nodiscard]] bool interrupted() const { return interrupts_ > 0; }
    [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
    [[nodiscard]] bool all(const std::function<bool(const Node&)>& predicate) const;
    // Hosts with an error.
    [[nodiscard]] size_t bad_count() const;
    [[nodiscard]] Time started_at() const { return started_at_; }

  private:
    void handle_event(const TransportEvent& event);
    void handle_frame(size_t host, const Frame& frame);
    void handle_end(const TransportEvent& event);
    void take_signals();
    void keep_in_touch();

    Transport& transport_;
    int signal_fd_;
    OnFrame on_frame_;
    std::vector<Node> nodes_;
    Time started_at_;
    Time next_ping_;
    int interrupts_ = 0;
    bool stopping_ = false;
};

}  // namespace dslaunch::launch
