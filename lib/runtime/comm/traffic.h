// The bytes between hosts, counted where they leave and arrive: by kind and by the host at the
// other end. Data path: executor's instruction -> traffic scope -> link -> [here] -> metrics,
// logger. Threads: a meter takes any; a scope is its thread's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/traffic_kind.h"

namespace dslaunch::runtime {

struct Traffic {
    Bytes sent;
    Bytes received;

    bool operator==(const Traffic&) const = default;
};

// The other GPUs of a job, whichever way their bytes take.
inline constexpr int kOtherDevices = -1;

// Payload that a rank, or several, sent and received.
struct TrafficTable {
    using Row = std::array<Traffic, kTrafficKinds>;
    std::map<int, Row> by_host;  // by the peer's number in the job, or kOtherDevices

    [[nodiscard]] Traffic of(TrafficKind kind) const;
    [[nodiscard]] Traffic of_host(int host) const;
    [[nodiscard]] Traffic all() const;
    TrafficTable& operator+=(const TrafficTable& more);
    // Returns the traffic since EARLIER, a table of the same counters.
    [[nodiscard]] TrafficTable since(const TrafficTable& earlier) const;
};

// Says what the transfers of this thread are for, until it ends.
class TrafficScope {
  public:
    explicit TrafficScope(TrafficKind kind);
    TrafficScope(const TrafficScope&) = delete;
    TrafficScope& operator=(const TrafficScope&) = delete;
    ~TrafficScope();

    // Returns kControl outside of all scopes.
    [[nodiscard]] static TrafficKind current();

  private:
    TrafficKind before_;
};

class TrafficMeter {
  public:
    // HOSTS are the peers' hosts in the job, by peer. Without it, peer N is host N.
    void set_hosts(std::vector<int> hosts);
    // Adds what went to or came from PEER, of the kind of this thread's scope.
    void add(int peer, const Traffic& moved);
    [[nodiscard]] TrafficTable table() const;

  private:
    mutable std::mutex mutex_;  // guards the members below
    std::vector<int> hosts_;
    TrafficTable table_;
};

}  // namespace dslaunch::runtime
