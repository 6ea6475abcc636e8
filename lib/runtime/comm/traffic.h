// The bytes between hosts, counted where they are sent and received: by kind and by the host at the
// other end. Data path: executor's instruction -> traffic scope -> link -> [here] -> metrics,
// logger. Threads: any thread may use a meter; a scope belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/traffic_kind.h"

namespace dslaunch::runtime {

// Bytes in both directions.
struct Traffic {
    Bytes sent;
    Bytes received;

    bool operator==(const Traffic&) const = default;
};

// The number that stands for all other GPUs of the job in TrafficTable::by_host.
inline constexpr int kOtherDevices = -1;

// The payload that one or several ranks sent and received.
struct TrafficTable {
    using Row = std::array<Traffic, kTrafficKinds>;
    std::map<int, Row> by_host;  // by the peer's number in the job, or kOtherDevices

    // Return the sum of one kind over all hosts, the sum of one host over all kinds, and the sum of
    // the whole table.
    [[nodiscard]] Traffic of(TrafficKind kind) const;
    [[nodiscard]] Traffic of_host(int host) const;
    [[nodiscard]] Traffic all() const;
    // Adds MORE, row by row.
    TrafficTable& operator+=(const TrafficTable& more);
    // Returns the traffic since EARLIER, a previous table of the same meter.
    [[nodiscard]] TrafficTable since(const TrafficTable& earlier) const;
};

// Sets the kind of all transfers of this thread, until the scope ends.
class TrafficScope {
  public:
    explicit TrafficScope(TrafficKind kind);
    TrafficScope(const TrafficScope&) = delete;
    TrafficScope& operator=(const TrafficScope&) = delete;
    ~TrafficScope();

    // Returns the kind that this thread's innermost scope sets; kControl outside of all scopes.
    [[nodiscard]] static TrafficKind current();

  private:
    TrafficKind before_;
};

// Counts the bytes of one link.
class TrafficMeter {
  public:
    // Sets the host of each peer to HOSTS. Without this call, peer N is host N.
    void set_hosts(std::vector<int> hosts);
    // Adds traffic with PEER, under the kind of this thread's scope.
    void add(int peer, const Traffic& moved);
    // Returns the traffic since the meter was made.
    [[nodiscard]] TrafficTable table() const;

  private:
    mutable std::mutex mutex_;  // guards the members below
    std::vector<int> hosts_;
    TrafficTable table_;
};

}  // namespace dslaunch::runtime
