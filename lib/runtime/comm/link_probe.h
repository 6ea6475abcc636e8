// A probe measures the path from one host to another over plain TCP sockets: the time of round
// trips, the number of packets that had to be resent, and the rate of growing bursts. The receiver
// verifies every word of a burst. Data path: pair search -> link probe -> health record. It uses
// neither Gloo nor NCCL, so its findings are about the network itself. Threads: a server has one
// thread of its own and one for each connection that has shown the token; probe_link blocks its
// caller.
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

// A secret of one job's ranks. A server answers only probes that show it.
using ProbeToken = std::array<uint64_t, 2>;

// The limits of one probe.
struct ProbeLimits {
    // TCP resends a lost packet of the handshake after 1 s, and again after 3 s. The limit allows
    // both.
    Duration connect = std::chrono::milliseconds(3'500);
    Duration latency = std::chrono::seconds(1);
    Duration burst = std::chrono::seconds(3);
    int64_t exchanges_max = 1000;
    int64_t burst_bytes_min = 64 << 10;
    int64_t burst_bytes_max = 64 << 20;
    // A burst that takes this long is enough to measure the rate.
    Duration burst_enough = std::chrono::milliseconds(20);
};

// Answers probes at an address of this machine, until it is destroyed.
class ProbeServer {
  public:
    // Listens on a free port of ADDRESS (numeric). Throws Error{kSetup}, naming the address.
    ProbeServer(const std::string& address, const ProbeToken& token);
    ProbeServer(const ProbeServer&) = delete;
    ProbeServer& operator=(const ProbeServer&) = delete;
    // Cuts the connections under way. Does not wait for peers.
    ~ProbeServer();

    // Returns the port on which it listens.
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
    launch::Guests guests_;                                 // used only by the accepting thread
    std::vector<std::unique_ptr<Connection>> connections_;  // used only by the accepting thread
    std::thread thread_;                                    // started last
};

// The two ends of a probe.
struct ProbePlace {
    std::string from;  // own numeric address to send from; empty if the system may choose
    std::string to;
    int port = 0;
};

// The findings of a probe.
struct ProbeResult {
    health::LinkSample way;  // the caller sets from, to and pass
    int64_t wrong_back = 0;  // answers that were changed in transit
};

// Measures the path and returns rates, times, counts or an `error`. Network failures never throw.
// If the path changes any bytes, the result counts them as wrong and has no `error`. Blocks for at
// most the sum of LIMITS plus twice limits.connect.
[[nodiscard]] ProbeResult probe_link(const ProbePlace& place, const ProbeToken& token,
                                     const ProbeLimits& limits);

// Returns the time in which this processor does a fixed piece of integer work: about 30 ms on an
// idle processor.
[[nodiscard]] Duration time_processor();

}  // namespace dslaunch::runtime
