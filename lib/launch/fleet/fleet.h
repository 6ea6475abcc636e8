// Agents on all hosts of a command or a job: started through any Transport, greeted, controlled by
// frames, ended together. Each host has its own error, and a bad host does not delay the others.
// One thread: the caller's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine/signal_repeats.h"
#include "launch/process/attention.h"
#include "launch/process/timing.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The callbacks that tell the owner of a Fleet what happens in it. Fleet::pump() calls them; the
// owner overrides only the functions that it needs.
class FleetListener {
  public:
    virtual ~FleetListener() = default;
    // The agent has said hello, in this protocol version.
    virtual void host_greeted(size_t /*host*/) {}
    // Takes frames that Fleet does not handle itself: all except hello, pong, gone, problems and
    // requests to end. Throws Error if the agent has sent nonsense; the host then counts as lost.
    virtual void take_frame(size_t /*host*/, const Frame& /*frame*/) {}
    // LINE, printable, came on stderr of an agent that has said hello.
    virtual void take_diagnostic(size_t /*host*/, const std::string& /*line*/) {}
    // The agent reports a problem in MESSAGE, printable; Node::error contains the first one.
    virtual void take_problem(size_t /*host*/, const std::string& /*message*/) {}
    // The agent is gone. LOST is true if neither this process nor the agent has planned the end;
    // Node::error then gives the reason.
    virtual void host_ended(size_t /*host*/, bool /*lost*/) {}
    // Somebody asks for the end; CAUSE says who. Returns true if pump() must stop waiting.
    [[nodiscard]] virtual bool end_wished(const std::string& /*cause*/) { return true; }
    // Called when there is nothing to do for the time LEFT. Returns how long to wait for the hosts.
    // Returns nothing if the owner has already waited; events of the hosts then stay queued until a
    // later call.
    [[nodiscard]] virtual std::optional<std::chrono::milliseconds> pause(
        std::chrono::milliseconds left) {
        return left;
    }
};

// The agents of one command or job.
class Fleet {
  public:
    using Time = std::chrono::steady_clock::time_point;
    // One host and its agent.
    struct Node {
        HostAddress address;
        bool greeted = false;                  // true: the agent has sent its hello
        bool ended = false;                    // true: the agent is gone, or given up
        bool misunderstood = false;            // true: the answer was not from an agent of this
                                               // protocol
        std::string error;                     // the reason why the host is bad; empty if it is not
        std::optional<ExitCode> problem_code;  // code of the first problem that the agent reported
        int exit_status = -1;  // status of the agent or of ssh that has ended by itself
        AgentHello hello;
        Time greeted_at;
        // The time when the connection was lost without the agent's farewell or exit status: the
        // processes that the agent started may keep running until the agent's lease is over.
        std::optional<Time> cut_off_at;

        // Returns true if the program at dslaunch's path is for another kind of processor.
        [[nodiscard]] bool has_foreign_program() const;
        // Returns true if the agent runs and no fault of the host is known.
        [[nodiscard]] bool serves() const { return greeted && !ended && error.empty(); }

      private:
        friend class Fleet;
        FrameDecoder frames{true};
        bool gone = false;  // true: the agent has sent its farewell
        Time last_byte;
        std::vector<std::string> diagnostics;
    };
    // The rules for stop(): the instructions to the agents, and the time to wait for them.
    struct StopRules {
        bool come_again = false;  // agents that connected by themselves must do so again
        std::chrono::milliseconds limit;
    };

    // SIGNAL_FD: a signalfd with the signals that end a command, or -1 for the default effect of
    // signals. HOSTS and TRANSPORT must outlive this object.
    Fleet(const std::vector<HostAddress>& hosts, Transport& transport, int signal_fd);
    // Reports to LISTENER (null: to nobody) what happens from now on.
    void listen(FleetListener* listener) { listener_ = listener != nullptr ? listener : &deaf_; }

    // Starts all agents and waits at most LIMIT until each has said hello or has failed. An agent
    // that has not answered by then, or has another protocol version, has an error.
    void connect(std::chrono::milliseconds limit, bool want_binary_hash);
    // Handles events until DONE() is true, and then returns true. Returns false if DEADLINE or a
    // request to end comes first.
    bool pump(const std::function<bool()>& done, Time deadline);
    // Queue a frame for one agent, or for all agents. A host that has ended gets no frame.
    void send(size_t host, FrameKind kind, std::string payload = {});
    void send_all(FrameKind kind, const std::string& payload = {});
    // Marks a host as bad. The agent is not informed and ends with the others.
    void blame(size_t host, const std::string& cause);
    // Gives up a host because of CAUSE; its agent ends together with everything that it started.
    void lose(size_t host, const std::string& cause);
    // Tells all agents to end what they started and then themselves, and waits until they have
    // ended. Must be called before the object is destroyed. The default limit is long enough for an
    // agent to report processes that do not die.
    void stop();
    void stop(const StopRules& rules);

    // Returns true if this process or an agent has received Ctrl-C or another signal that ends a
    // command.
    [[nodiscard]] bool interrupted() const { return interrupts_ > 0; }
    // Returns true from the call of stop() on.
    [[nodiscard]] bool stopping() const { return is_stopping_; }
    // Returns the hosts, in the order of the constructor's HOSTS.
    [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
    // Returns true if PREDICATE is true for every host.
    [[nodiscard]] bool all(const std::function<bool(const Node&)>& predicate) const;
    // Returns true if every agent has sent something since TIME, or has ended.
    [[nodiscard]] bool heard_all_since(Time time) const;
    // Returns the number of hosts with an error.
    [[nodiscard]] size_t bad_count() const;
    // If a host is bad, throws Error{CODE}. The message contains WHAT, then the bad hosts with
    // their errors (equal errors together). Its last line is ADVICE, unless ADVICE is empty or
    // somebody has asked for the end.
    void fail_if_bad(const std::string& what, ExitCode code = ExitCode::kHosts,
                     const std::string& advice = "") const;
    // Returns the time of the call of connect().
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
    int interrupts_ = 0;                  // requests to end so far
    std::optional<Time> agent_asked_at_;  // when an agent made the first request
    SignalRepeats repeats_;
    bool has_given_up_ = false;  // true: the owner asked this call of pump() to stop
                                 // waiting
    bool is_stopping_ = false;
};

// Returns a message for the user if the host of HELLO has a different kind of processor than this
// machine. Such a host needs its own build of dslaunch. Empty if both have the same kind.
[[nodiscard]] std::string describe_other_processor(const AgentHello& hello);

// The exit code of a shell or a dynamic loader if a program, or one of its libraries, is missing.
inline constexpr int kNoProgram = 127;
// The indentation, in columns, of the second and later lines of a cause.
inline constexpr size_t kCauseIndent = 6;

// A text, and the hosts that have it.
struct EqualTexts {
    std::vector<size_t> hosts;  // ascending
    std::string text;
};

// Groups the indices of equal TEXTS, in the order in which each text first appears.
[[nodiscard]] std::vector<EqualTexts> group_equal(const std::vector<std::string>& texts);

}  // namespace dslaunch::launch
