// A probe measures the path from one host to another over plain TCP sockets: round trips of small
// messages, packets that had to be sent again, and the rate of growing bursts, every word verified
// where it arrives. Data path: pair search -> link probe -> health record. It uses neither Gloo nor
// NCCL, so its findings are the network's. Threads: a server has one thread of its own and one for
// each connection that has shown the token; probe_link blocks its caller.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "health/health_record.h"
#include "launch/network/guests.h"

namespace dslaunch::runtime {

// A secret of one job's ranks. A server speaks with nobody else.
using ProbeToken = std::array<uint64_t, 2>;

struct ProbeLimits {
    // Two lost packets of the handshake are resent after 1 and 3 s.
    Duration connect = std::chrono::milliseconds(3'500);
    Duration latency = std::chrono::seconds(1);
    Duration burst = std::chrono::seconds(3);
    int64_t exchanges_max = 1000;
    int64_t burst_bytes_min = 64 << 10;
    int64_t burst_bytes_max = 64 << 20;
    // A burst that took so long is enough to tell the rate.
    Duration burst_enough = std::chrono::milliseconds(20);
};

// Answers probes at an address of this machine until it is destroyed.
class ProbeServer {
  public:
    // Listens on a free port of ADDRESS (digits). Throws Error{kSetup} naming it.
    ProbeServer(const std::string& address, const ProbeToken& token);
    ProbeServer(const ProbeServer&) = delete;
    ProbeServer& operator=(const ProbeServer&) = delete;
    // Cuts connections under way. Does not wait for peers.
    ~ProbeServer();

    [[nodiscard]] int port() const { return port_; }

  private:
    struct Connection {
        UniqueFd fd;
        std::thread thread;
        std::atomic<bool> done{false};
    };

    void accept_until_stopped();
    void begin_to_serve(UniqueFd fd);
    void drop_finished();

    std::string welcome_;
    UniqueFd listener_;
    Pipe wake_;
    int port_ = 0;
    launch::Guests guests_;                                 // the accepting thread's
    std::vector<std::unique_ptr<Connection>> connections_;  // the same
    std::thread thread_;                                    // started last
};

struct ProbePlace {
    std::string from;  // own address to send from, in digits; empty: the system's choice
    std::string to;
    int port = 0;
};

struct ProbeResult {
    health::LinkSample way;  // from, to and pass are the caller's
    int64_t wrong_back = 0;  // answers that arrived other than they were sent
};

// Fills rates, times, counts or `error`. The network's failures never throw. A path that changes
// bytes has `wrong` and no `error`, whatever was changed. Blocks at most the sum of LIMITS and
// twice limits.connect more.
[[nodiscard]] ProbeResult probe_link(const ProbePlace& place, const ProbeToken& token,
                                     const ProbeLimits& limits);

// Returns how long a fixed piece of integer work takes this processor: about 30 ms if it is free.
[[nodiscard]] Duration time_processor();

}  // namespace dslaunch::runtime
