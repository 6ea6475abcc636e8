#include "launch/machine/held_name.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kWatchersMax = 4096;  // watchers in the queue; the kernel may allow fewer
constexpr milliseconds kLookInterval{100};

struct Address {
    sockaddr_un value{};
    socklen_t bytes = 0;
};

// Returns the socket's address. It begins with a zero byte, so the socket is not a file.
Address address_of(const std::string& name) {
    Address address;
    address.value.sun_family = AF_UNIX;
    std::string path = fmt::format("dslaunch-{}-{}", ::getuid(), name);
    if (path.size() >= sizeof address.value.sun_path)
        path = fmt::format("dslaunch-{}-{:016x}", ::getuid(), std::hash<std::string>()(name));
    std::memcpy(address.value.sun_path + 1, path.data(), path.size());
    address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    return address;
}

UniqueFd stream_socket() {
    return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// Connects to the process of this user that holds NAME. The result is invalid if no process does.
UniqueFd connect_to(const std::string& name) {
    const Address address = address_of(name);
    UniqueFd socket = stream_socket();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.value), address.bytes) !=
        0)
        return {};
    ucred peer{};
    socklen_t bytes = sizeof peer;
    const bool is_known = ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
                          peer.uid == ::getuid();
    return is_known ? std::move(socket) : UniqueFd();
}

// Waits until the holder at the other end of SOCKET is gone.
void wait_for_end(const UniqueFd& socket) {
    pollfd entry{socket.get(), POLLIN, 0};
    while (::poll(&entry, 1, -1) < 0) {
    }
}

}  // namespace

HeldName::HeldName(const std::string& name) : socket_(stream_socket()) {
    const Address address = address_of(name);
    const bool held = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address.value),
                             address.bytes) == 0 &&
                      ::listen(socket_.get(), kWatchersMax) == 0;
    if (!held) socket_.reset();
}

std::string take_held_name_variable() {
    const char* value = std::getenv(kHeldNameVariable);
    const std::string name = value == nullptr ? "" : value;
    ::unsetenv(kHeldNameVariable);
    return name;
}

bool wait_for_release(const std::string& name, const NameWait& limits) {
    bool was_held = false;
    auto limit = steady_clock::now() + limits.appears_max;
    for (;;) {
        if (const UniqueFd holder = connect_to(name); holder.valid()) {
            was_held = true;
            wait_for_end(holder);
            limit = steady_clock::now() + limits.returns_max;
        }
        pollfd entry{limits.signal_fd, POLLIN, 0};
        if (steady_clock::now() >= limit) return was_held;
        if (::poll(&entry, 1, static_cast<int>(kLookInterval.count())) > 0) return was_held;
    }
}

}  // namespace dslaunch::launch
