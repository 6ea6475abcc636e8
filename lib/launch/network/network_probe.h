// The agent's half of finding the network: it listens for the other hosts, connects to the places
// where they listen, and records who reached whom. A connecting host sends the job's key and learns
// which host answered. This reveals an address that two hosts share. Owned and polled by the
// agent's one thread; no call blocks, except for name look-ups in listen().
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/network/guests.h"
#include "launch/network/network.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Returns this node's facts: version, host name, cores, GPUs, kernel, arrival address. No hash.
[[nodiscard]] AgentHello look_at_node();

// The socket on which rank 0 will accept the other ranks.
struct MeetingSocket {
    UniqueFd socket;  // listening, close-on-exec
    PrepareReply where;
};

// Binds and listens. Throws Error{kSetup} that names address and port when that fails.
[[nodiscard]] MeetingSocket open_rendezvous(const PrepareRequest& request,
                                            const std::string& arrival_address);

// The sockets of one agent while the network is chosen.
class NetworkProbe {
  public:
    using Time = std::chrono::steady_clock::time_point;

    NetworkProbe() = default;
    NetworkProbe(const NetworkProbe&) = delete;
    NetworkProbe& operator=(const NetworkProbe&) = delete;

    // Opens a socket for each address and answers there from now on. Throws Error{kSetup} as
    // open_rendezvous() does if PORT is given and one of the sockets cannot be bound; other errors
    // are in the reply.
    [[nodiscard]] ListenReply listen(const ListenRequest& request);
    // Begins to connect to the targets of the request.
    void begin(const ProbeRequest& request, Time now);
    // Returns the reply once every connection has succeeded or failed, or the time is over. Returns
    // nothing if the reply is not complete yet or an earlier call has returned it.
    [[nodiscard]] std::optional<ProbeReply> take_reply(Time now);
    // Returns the time by which take_reply() must be called again.
    [[nodiscard]] std::optional<Time> deadline() const;
    // Returns the socket at ADDRESS in blocking mode, with our own connections removed from its
    // queue; closes the other sockets.
    [[nodiscard]] MeetingSocket keep(const std::string& address);

    // A descriptor to poll, and the events of poll() to wait for.
    struct Watch {
        int fd;
        short events;
    };
    // Returns the descriptors that ready() can handle now.
    [[nodiscard]] std::vector<Watch> watch() const;
    // Handles FD, a ready descriptor of watch().
    void ready(int fd);

  private:
    // A connection on which the answer was sent. The other host must close it first. If this host
    // closed it first, the port would stay in TIME_WAIT.
    struct Answered {
        UniqueFd socket;
        Time until;  // closed at this time
    };
    struct Attempt {
        UniqueFd socket;  // invalid once the result is decided
        bool connected = false;
        std::string received;
        int openings = 0;  // connections so far
        ProbeRequest::Target target;
        ProbeReply::Result result;
    };
    void answer(UniqueFd socket);
    void open(Attempt& attempt);
    void say_key(Attempt& attempt);
    void advance(Attempt& attempt);
    void judge(Attempt& attempt);
    void decide(Attempt& attempt, std::string error);

    std::vector<MeetingSocket> listeners_;
    Guests guests_{[this](UniqueFd socket) { answer(std::move(socket)); }};
    std::list<Answered> answered_;  // in the order of their answers
    std::vector<Attempt> attempts_;
    std::string key_;
    std::string answer_;
    std::optional<Time> deadline_;  // set while a reply must still be returned
    std::chrono::milliseconds time_max_{0};
};

}  // namespace dslaunch::launch
