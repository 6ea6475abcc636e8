#include "launch/agent/port_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "launch/machine/port_owner.h"
#include "launch/machine/user_name.h"

namespace dslaunch::launch {
namespace {

// A look reads the table of all sockets, which takes the kernel some 10 ms: most ranks listen soon,
// and those that never do are looked for less and less.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{1000};
constexpr std::chrono::seconds kPortWatchMax{60};

}  // namespace

void PortWatch::begin(int port, Time now) {
    port_ = port;
    pause_ = kFirstPause;
    next_look_ = now + pause_;
    end_ = now + kPortWatchMax;
}

std::string PortWatch::look(Time now) {
    if (now < next_look_) return "";
    const std::set<int64_t> users = port_users(port_);
    pause_ = std::min(2 * pause_, kLongestPause);
    next_look_ = users.empty() && now < end_ ? now + pause_ : Time::max();
    if (users.empty() || users.contains(::geteuid())) return "";
    return fmt::format(
        "port {} (MASTER_PORT) was taken by user {} before rank 0 had it: the ranks would have met "
        "in that user's store. Nothing that they sent there is secret any more; start again with "
        "another --master_port",
        port_, user_name(static_cast<uid_t>(*users.begin())));
}

}  // namespace dslaunch::launch
