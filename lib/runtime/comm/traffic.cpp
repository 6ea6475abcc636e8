#include "runtime/comm/traffic.h"

#include <utility>

namespace dslaunch::runtime {

namespace {

thread_local TrafficKind kind_of_thread = TrafficKind::kControl;

void add_to(Traffic& sum, const Traffic& more) {
    sum.sent += more.sent;
    sum.received += more.received;
}

}  // namespace

TrafficScope::TrafficScope(TrafficKind kind) : before_(kind_of_thread) {
    kind_of_thread = kind;
}

TrafficScope::~TrafficScope() {
    kind_of_thread = before_;
}

TrafficKind TrafficScope::current() {
    return kind_of_thread;
}

Traffic TrafficTable::of(TrafficKind kind) const {
    Traffic sum;
    for (const auto& [host, row] : by_host) add_to(sum, row[static_cast<size_t>(kind)]);
    return sum;
}

Traffic TrafficTable::of_host(int host) const {
    Traffic sum;
    const auto found = by_host.find(host);
    if (found == by_host.end()) return sum;
    for (const Traffic& one : found->second) add_to(sum, one);
    return sum;
}

Traffic TrafficTable::all() const {
    Traffic sum;
    for (const auto& [host, row] : by_host) add_to(sum, of_host(host));
    return sum;
}

TrafficTable& TrafficTable::operator+=(const TrafficTable& more) {
    for (const auto& [host, row] : more.by_host)
        for (size_t kind = 0; kind < row.size(); ++kind) add_to(by_host[host][kind], row[kind]);
    return *this;
}

TrafficTable TrafficTable::since(const TrafficTable& earlier) const {
    TrafficTable result = *this;
    for (const auto& [host, row] : earlier.by_host)
        for (size_t kind = 0; kind < row.size(); ++kind) {
            Traffic& left = result.by_host[host][kind];
            left.sent -= row[kind].sent;
            left.received -= row[kind].received;
        }
    return result;
}

void TrafficMeter::set_hosts(std::vector<int> hosts) {
    const std::lock_guard lock(mutex_);
    hosts_ = std::move(hosts);
}

void TrafficMeter::add(int peer, const Traffic& moved) {
    const std::lock_guard lock(mutex_);
    const int host = hosts_.empty() ? peer : hosts_.at(static_cast<size_t>(peer));
    add_to(table_.by_host[host][static_cast<size_t>(TrafficScope::current())], moved);
}

TrafficTable TrafficMeter::table() const {
    const std::lock_guard lock(mutex_);
    return table_;
}

}  // namespace dslaunch::runtime
