#include "launch/agent/port_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include "launch/machine/port_owner.h"
#include "launch/machine/user_name.h"

namespace dslaunch::launch {
namespace {

constexpr std::chrono::milliseconds kPortLook{100};
constexpr std::chrono::seconds kPortWatchMax{60};

}  // namespace

void PortWatch::begin(int port, Time now) {
    port_ = port;
    next_look_ = now + kPortLook;
    end_ = now + kPortWatchMax;
}

std::string PortWatch::look(Time now) {
    if (now < next_look_) return "";
    const std::set<int64_t> users = port_users(port_);
    next_look_ = users.empty() && now < end_ ? now + kPortLook : Time::max();
    if (users.empty() || users.contains(::geteuid())) return "";
    return fmt::format(
        "port {} (MASTER_PORT) was taken by user {} before rank 0 had it: the ranks would have met "
        "in that user's store. Nothing that they sent there is secret any more; start again with "
        "another --master_port",
        port_, user_name(static_cast<uid_t>(*users.begin())));
}

}  // namespace dslaunch::launch
