// The agent's half of finding the network: sockets that listen for the other hosts, connections to
// theirs, and who reached whom. A connecting host shows the job's key and learns which host
// answered, which reveals an address that two hosts have. Owned and polled by the agent's one
// thread; no call blocks, but for the look-up of a name in listen().
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

struct Rendezvous {
    UniqueFd socket;  // listening, close-on-exec
    PrepareReply where;
};

// Binds and listens. Throws Error{kSetup} that names address and port when that fails.
[[nodiscard]] Rendezvous open_rendezvous(const PrepareRequest& request,
                                         const std::string& arrival_address);

class NetworkProbe {
  public:
    using Time = std::chrono::steady_clock::time_point;

    NetworkProbe() = default;
    NetworkProbe(const NetworkProbe&) = delete;
    NetworkProbe& operator=(const NetworkProbe&) = delete;

    // Opens a socket for each address, which answers from now on. Throws Error{kSetup} as
    // open_rendezvous() when PORT is given and one cannot be bound; the reply has the other errors.
    [[nodiscard]] ListenReply listen(const ListenRequest& request);
    // Begins to connect.
    void begin(const ProbeRequest& request, Time now);
    // Returns the reply once, when every connection has succeeded or failed, or the time is over.
    [[nodiscard]] std::optional<ProbeReply> take_reply(Time now);
    // Returns the latest time for the next take_reply().
    [[nodiscard]] std::optional<Time> deadline() const;
    // Returns the socket at ADDRESS, blocking, its queue free of our connections; closes the rest.
    [[nodiscard]] Rendezvous keep(const std::string& address);

    struct Watch {
        int fd;
        short events;
    };
    [[nodiscard]] std::vector<Watch> watch() const;
    // Handles FD of watch(), which is ready.
    void ready(int fd);

  private:
    // A host that has its answer closes first: this end would leave the port in TIME_WAIT.
    struct Answered {
        UniqueFd socket;
        Time until;  // it goes then
    };
    struct Attempt {
        UniqueFd socket;  // not valid: decided
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

    std::vector<Rendezvous> listeners_;
    Guests guests_{[this](UniqueFd socket) { answer(std::move(socket)); }};
    std::list<Answered> answered_;  // in the order of their answers
    std::vector<Attempt> attempts_;
    std::string key_;
    std::string answer_;
    std::optional<Time> deadline_;  // set: a reply is owed
    std::chrono::milliseconds time_max_{0};
};

}  // namespace dslaunch::launch
