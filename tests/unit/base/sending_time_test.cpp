// Linux's count of the time in which TCP connections send, for a connection to this machine.
#include "base/machine/sending_time.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "support/catch.h"

namespace dslaunch {
namespace {

// Two ends of a TCP connection.
struct Connection {
    Connection() {
        const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        REQUIRE(::bind(listener, any, length) == 0);
        REQUIRE(::listen(listener, 1) == 0);
        REQUIRE(::getsockname(listener, any, &length) == 0);
        from = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(::connect(from, any, length) == 0);
        to = ::accept(listener, nullptr, nullptr);
        ::close(listener);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() {
        ::close(from);
        ::close(to);
    }
    int from = -1;
    int to = -1;
};

}  // namespace

TEST_CASE("a connection that sends is busy, and one that is idle adds nothing") {
    const Duration before = sending_time();
    const Connection connection;
    const Duration idle = sending_time();
    std::thread reader([&] {
        std::vector<char> into(1 << 20);
        while (::read(connection.to, into.data(), into.size()) > 0) {
        }
    });
    // The kernel counts in ticks of its timer, and a fast machine sends much in one tick.
    constexpr size_t kBytesMax = size_t{16} << 30;
    const std::vector<char> bytes(1 << 20, 'x');
    Duration after = idle;
    bool sends = true;
    for (size_t sent = 0; sends && after <= idle && sent < kBytesMax;) {
        const ssize_t more = ::write(connection.from, bytes.data(), bytes.size());
        sends = more > 0;
        if (sends) sent += static_cast<size_t>(more);
        after = sending_time();
    }
    ::shutdown(connection.from, SHUT_WR);
    reader.join();
    CHECK(sends);
    CHECK(idle - before < std::chrono::milliseconds(1));
    CHECK(after > idle);
}

}  // namespace dslaunch
