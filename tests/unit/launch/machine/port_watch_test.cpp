#include "launch/machine/port_watch.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "support/catch.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Listens on a free port of the loopback address of FAMILY.
struct Holder {
    UniqueFd socket;
    int port = 0;

    explicit Holder(int family) : socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in6 address{};  // room for either family
        socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        auto* const generic = reinterpret_cast<sockaddr*>(&address);
        generic->sa_family = static_cast<sa_family_t>(family);
        if (family == AF_INET6) address.sin6_addr = in6addr_loopback;
        if (!socket.valid() || ::bind(socket.get(), generic, length) != 0 ||
            ::listen(socket.get(), 1) != 0 || ::getsockname(socket.get(), generic, &length) != 0) {
            return;
        }
        port = ntohs(address.sin6_port);  // same place in both families
    }
};

}  // namespace

TEST_CASE("who holds a port is named, by IPv4 and IPv6") {
    for (const int family : {AF_INET, AF_INET6}) {
        const Holder holder(family);
        if (holder.port == 0) {
            report_skipped("the holder of an IPv6 port", "this machine has no ::1");
            continue;
        }
        CHECK_THAT(describe_port_owner(holder.port),
                   Catch::Contains("process " + std::to_string(::getpid()) + " (") &&
                       Catch::Contains("test_launch"));
    }
    int free_port = 0;
    {
        const Holder gone(AF_INET);
        free_port = gone.port;
    }
    CHECK(describe_port_owner(free_port).empty());
}

TEST_CASE("of another user's process the user is named") {
    if (::getuid() != 0) {
        return report_skipped("the name of another user who holds a port",
                              "only root can be somebody else");
    }
    const Holder holder(AF_INET);
    const Pipe answer = make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(holder.socket.get());
        const bool other = ::setgid(65'534) == 0 && ::setuid(65'534) == 0;
        const std::string text = other ? describe_port_owner(holder.port) : "no other user";
        static_cast<void>(write_full(answer.write_end.get(), text + std::string(64, ' ')));
        ::_exit(0);
    }
    std::string text(23, '\0');
    static_cast<void>(read_full(answer.read_end.get(), std::as_writable_bytes(std::span(text))));
    ::waitpid(child, nullptr, 0);
    CHECK(text == "a process of user root ");
}
