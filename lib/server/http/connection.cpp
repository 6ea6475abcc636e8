#include "server/http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "server/http/reply_writer.h"

namespace dslaunch::server {

namespace {

using std::chrono::milliseconds;

// Waits for EVENTS on SOCKET, for at most TIME. Returns false if they did not occur in that time or
// the client has left.
bool await(int socket, short events, Duration time) {
    pollfd entry{socket, static_cast<short>(events | POLLRDHUP), 0};
    const auto ms = std::chrono::ceil<milliseconds>(std::max(time, Duration{0})).count();
    int ready = 0;
    do {
        ready = ::poll(&entry, 1, static_cast<int>(ms));
    } while (ready < 0 && errno == EINTR);
    return ready == 1 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

bool has_left(int socket) {
    pollfd entry{socket, POLLRDHUP, 0};
    return ::poll(&entry, 1, 0) == 1;
}

// Sends BYTES, which fit in the socket's buffer, without waiting.
void send_now(const Connection& connection, std::string_view bytes) noexcept {
    static_cast<void>(
        ::send(connection.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace

bool ConnectionClient::write(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent =
            ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            bytes.remove_prefix(static_cast<size_t>(sent));
        } else if (errno != EINTR && (errno != EAGAIN || !await(socket_, POLLOUT, pause_max_))) {
            return false;
        }
    }
    return true;
}

bool ConnectionClient::is_there() const {
    return !has_left(socket_);
}

void send_continue(const Connection& connection) {
    send_now(connection, "HTTP/1.1 100 Continue\r\n\r\n");
}

void settle(Connection& connection) {
    connection.reader.reset();
    connection.since = SystemClock().now();
    connection.phase =
        connection.is_usable ? Connection::Phase::kIdle : Connection::Phase::kDraining;
    if (!connection.is_usable) ::shutdown(connection.socket.get(), SHUT_WR);
}

void drain(Connection& connection) {
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.phase = Connection::Phase::kDraining;
    connection.since = SystemClock().now();
    connection.reader.reset();
}

bool answer_and_drain(Connection& connection, const HttpReply& reply) {
    ConnectionClient client(connection.socket.get(), Duration{0});
    const bool has_head = connection.reader.state() != RequestReader::State::kRefused &&
                          connection.reader.state() != RequestReader::State::kHead;
    const bool is_head = has_head && connection.reader.head().method == "HEAD";
    if (!write_reply(reply, {.stays_open = false, .sends_body = !is_head}, client)) return false;
    drain(connection);
    return true;
}

void answer_no_memory(const Connection& connection) noexcept {
    send_now(connection, kNoMemoryReply);
}

}  // namespace dslaunch::server
