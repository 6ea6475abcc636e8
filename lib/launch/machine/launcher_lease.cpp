#include "launch/machine/launcher_lease.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cstdlib>

#include "base/clock.h"
#include "launch/machine/connection_signs.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;

}  // namespace

LauncherLease LauncherLease::same_machine() {
    return {Way::kSameMachine, -1, ""};
}

LauncherLease LauncherLease::over_socket(int fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    const bool is_unix = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 &&
                         address.ss_family == AF_UNIX;
    return is_unix ? same_machine() : LauncherLease(Way::kSocket, fd, "");
}

LauncherLease LauncherLease::over_ssh(std::string ssh_connection) {
    return {Way::kSsh, -1, std::move(ssh_connection)};
}

LauncherLease LauncherLease::over_stdio(bool is_same_machine) {
    if (is_same_machine) return same_machine();
    const char* connection = std::getenv("SSH_CONNECTION");
    return over_ssh(connection == nullptr ? "" : connection);
}

std::string LauncherLease::over(milliseconds silence) const {
    if (way_ == Way::kSameMachine || silence <= kSilenceMax) return "";
    if (silence > kLeaseMax) {
        return fmt::format("nothing from the launcher for {} s", to_milliseconds(kLeaseMax) / 1000);
    }
    const auto signs = way_ == Way::kSocket ? signs_of_socket(fd_) : signs_of_ssh(ssh_connection_);
    if (!signs || signs->answers(kSilenceMax)) return "";
    return fmt::format(
        "nothing from the launcher for {} s, and its machine or the network to it is gone",
        to_milliseconds(kSilenceMax) / 1000);
}

}  // namespace dslaunch::launch
