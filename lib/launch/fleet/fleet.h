// Agents on all hosts of a command or a job: started through any Transport, greeted, spoken to by
// frames, ended together. Each host keeps its own error, and a bad host holds up no other. One
// thread: the caller's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/process/timing.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The owner of a Fleet hears here what happens on it, from within Fleet::pump(); it overrides only
// the functions that concern it.
class FleetListener {
  public:
    virtual ~FleetListener() = default;
    // The agent has said hello, in this protocol version.
    virtual void host_greeted(size_t /*host*/) {}
    // Takes frames that Fleet does not take itself: all but the hello, pong, gone, problems and
    // wishes to end. An Error thrown here loses the host: its agent speaks nonsense.
    virtual void take_frame(size_t /*host*/, const Frame& /*frame*/) {}
    // LINE, printable, came on stderr of an agent that has said hello.
    virtual void take_diagnostic(size_t /*host*/, const std::string& /*line*/) {}
    // The agent says in MESSAGE, printable, what went wrong; Node::error has the first one.
    virtual void take_problem(size_t /*host*/, const std::string& /*message*/) {}
    // The agent is gone. LOST: neither we nor the agent wanted it; Node::error says why.
    virtual void host_ended(size_t /*host*/, bool /*lost*/) {}
    // Somebody asks for the end; CAUSE says who. Returns true if pump() must give up its wait.
    [[nodiscard]] virtual bool end_wished(const std::string& /*cause*/) { return true; }
    // There is nothing to do for LEFT. Returns how long to wait for the hosts; nothing: the owner
    // has waited itself, and the hosts are looked at later.
    [[nodiscard]] virtual std::optional<std::chrono::milliseconds> pause(
        std::chrono::milliseconds left) {
        return left;
    }
};

class Fleet {
  public:
    using Time = std::chrono::steady_clock::time_point;
    struct Node {
        HostAddress address;
        bool greeted = false;                  // true: the agent has sent its hello
        bool ended = false;                    // true: the agent is gone, or given up
        bool misunderstood = false;            // true: the answer was not from an agent of this
                                               // protocol
        std::string error;                     // the reason why the host is bad; empty: none
        std::optional<ExitCode> problem_code;  // code of the first problem that the agent reported
        int exit_status = -1;  // status of the agent or of ssh that has ended by itself
        AgentHello hello;
        Time greeted_at;
        // The time when the connection was lost without the agent's farewell or exit status: what
        // it started may run on until its lease is over.
        std::optional<Time> cut_off_at;

        [[nodiscard]] bool serves() const { return greeted && !ended && error.empty(); }

      private:
        friend class Fleet;
        FrameDecoder frames{true};
        bool gone = false;  // true: the agent has sent its farewell
        Time last_byte;
        std::vector<std::string> diagnostics;
    };
    struct StopRules {
        bool come_again = false;  // agents that came by themselves are wanted once more
        std::chrono::milliseconds limit;
    };

    // SIGNAL_FD: a signalfd with the signals that end a command, or -1 for the default effect of
    // signals. Both references must outlive this object.
    Fleet(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd);
    // Tells LISTENER (null: nobody) what happens from now on.
    void listen(FleetListener* listener) { listener_ = listener != nullptr ? listener : &deaf_; }

    // Starts all agents and waits at most LIMIT until each has said hello or has failed. An agent
    // that has not answered by then, or has another protocol version, has an error.
    void connect(std::chrono::milliseconds limit, bool want_binary_hash);
    // Handles events until DONE() (true), or until DEADLINE or a wish to end (false).
    bool pump(const std::function<bool()>& done, Time deadline);
    void send(size_t host, FrameKind kind, std::string payload = {});
    void send_all(FrameKind kind, const std::string& payload = {});
    // Makes a host bad for a reason that its agent need not know: it ends with the others.
    void blame(size_t host, const std::string& cause);
    // Gives a host up for CAUSE; its agent ends with everything that it started.
    void lose(size_t host, const std::string& cause);
    // Tells all agents to end what they started and then themselves, and waits for that; called
    // before the object ends. By default it waits as long as for processes that do not die.
    void stop();
    void stop(const StopRules& rules);

    // Returns true if Ctrl-C or another signal that ends a command came, here or to an agent.
    [[nodiscard]] bool interrupted() const { return interrupts_ > 0; }
    [[nodiscard]] bool stopping() const { return stopping_; }
    [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
    [[nodiscard]] bool all(const std::function<bool(const Node&)>& predicate) const;
    // Returns true if every agent that has not ended has sent something since TIME.
    [[nodiscard]] bool heard_all_since(Time time) const;
    // Returns the number of hosts with an error.
    [[nodiscard]] size_t bad_count() const;
    // Throws Error{CODE} with WHAT, the bad hosts with their errors (equal ones together), and a
    // last line ADVICE if there is one and nobody has asked for the end.
    void fail_if_bad(const std::string& what, ExitCode code = ExitCode::kHosts,
                     const std::string& advice = "") const;
    [[nodiscard]] Time started_at() const { return started_at_; }

  private:
    void handle_event(const TransportEvent& event);
    void handle_frame(size_t host, const Frame& frame);
    void handle_hello(size_t host, const Frame& frame);
    void handle_problem(size_t host, const Frame& frame);
    void handle_end(const TransportEvent& event);
    static void note_end(Node& node);
    void take_signals();
    void wish_end(const std::string& cause);
    void keep_in_touch();

    Transport& transport_;
    int signal_fd_;
    FleetListener deaf_;
    FleetListener* listener_ = &deaf_;
    std::vector<Node> nodes_;
    Time started_at_;
    Time next_ping_;
    Attention attention_;
    int interrupts_ = 0;                  // wishes to end so far
    std::optional<Time> agent_asked_at_;  // the first came from an agent
    bool given_up_ = false;               // since the call of pump(), which waits for it
    bool stopping_ = false;
};

// The exit code of a shell or a dynamic loader when a program, or a library of it, is missing.
inline constexpr int kNoProgram = 127;
// The columns before the further lines of a cause.
inline constexpr size_t kCauseIndent = 6;

struct EqualTexts {
    std::vector<size_t> hosts;  // ascending
    std::string text;
};

// Returns the indices of equal TEXTS together, in the order of the first of each.
[[nodiscard]] std::vector<EqualTexts> group_equal(const std::vector<std::string>& texts);

}  // namespace dslaunch::launch
