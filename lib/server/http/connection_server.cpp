#include "server/http/connection_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "server/http/listening_port.h"
#include "server/http/reply_writer.h"

namespace dslaunch::server {

namespace {

using std::chrono::milliseconds;

constexpr int kAcceptedAtOnce = 1024;
constexpr milliseconds kSweepInterval{100};
constexpr size_t kReceiveBytes = size_t{64} << 10;
// The number of file descriptors that are kept for other uses than connections.
constexpr int kOtherDescriptors = 64;

int descriptors_max() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT_MAX;
    return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
}

}  // namespace

ConnectionServer::ConnectionServer(const ConnectionLimits& limits, RequestBudget& budget,
                                   HttpHandler& handler)
    : limits_(limits),
      budget_(budget),
      handler_(handler),
      answerer_(handler, limits.requests_max, is_ending_),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(kReceiveBytes),
      threads_(
          static_cast<size_t>(limits.answers_max),
          [this](Connection& connection) { answerer_.answer(connection, limits_.pause_max); },
          [this] { wake(); }) {
    if (!events_.valid() || !wake_.valid())
        fail(ExitCode::kSetup,
             "the server cannot open file descriptors for its connections: {}; raise the limit of "
             "open files (ulimit -n)",
             errno_text(errno));
    limits_.connections_max =
        std::max(std::min(limits_.connections_max, descriptors_max() - kOtherDescriptors), 16);
    epoll_event event{EPOLLIN, {.ptr = nullptr}};
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
        fail(ExitCode::kSetup, "the system cannot watch sockets: {}", errno_text(errno));
}

ConnectionServer::~ConnectionServer() = default;

int ConnectionServer::bind(const std::string& host, int port) {
    ListeningPort opened = listen_on(host, port);
    listener_ = std::move(opened.socket);
    return opened.port;
}

void ConnectionServer::wake() noexcept {
    const uint64_t one = 1;
    static_cast<void>(::write(wake_.get(), &one, sizeof one));
}

void ConnectionServer::end() noexcept {
    is_ending_ = true;
    wake();
}

void ConnectionServer::run() {
    DSL_CHECK(listener_.valid(), "bind() comes first");
    threads_.start();
    while (goes_on()) look();
    threads_.end();
}

bool ConnectionServer::goes_on() {
    if (!is_ending_) {
        // Accepts connections if there is room, or if make_room() can close a waiting connection.
        // Otherwise new connections wait in the system's queue.
        const bool may_listen =
            open_ < static_cast<size_t>(limits_.connections_max) || !reading_.empty();
        if (may_listen != is_listening_) {
            epoll_event event{EPOLLIN, {.ptr = &listener_}};
            const int change = may_listen ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
            if (::epoll_ctl(events_.get(), change, listener_.get(), &event) == 0)
                is_listening_ = may_listen;
        }
        return true;
    }
    if (listener_.valid()) {
        ::shutdown(listener_.get(), SHUT_RDWR);
        listener_.reset();
        while (!reading_.empty()) drop(reading_.front());
    }
    return threads_.answering() > 0;
}

// Waits for the next events and handles them.
void ConnectionServer::look() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>(kSweepInterval.count()));
    bool comes = false;
    for (int i = 0; i < count; ++i) {
        void* const what = events[static_cast<size_t>(i)].data.ptr;
        if (what == nullptr) {
            uint64_t wishes = 0;
            static_cast<void>(::read(wake_.get(), &wishes, sizeof wishes));
        } else if (what == &listener_) {
            comes = true;
        } else if (!is_ending_) {
            receive(*static_cast<Connection*>(what));
        }
    }
    // Accepts new connections only now. To make room, accept_all() may close a connection, and one
    // of the events above could still point to the closed connection.
    if (comes && !is_ending_) accept_all();
    take_back();
    if (SystemClock().now() >= next_sweep_) sweep();
}

void ConnectionServer::accept_all() {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
        UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
            // If no file descriptors are left, make_room() closes the connection that has waited
            // longest. The freed descriptor serves a new connection, in this call or the next.
            if ((errno == EMFILE || errno == ENFILE) && !make_room()) return;
            if (errno != ECONNABORTED && errno != EINTR && errno != EMFILE) return;
            continue;
        }
        if (open_ >= static_cast<size_t>(limits_.connections_max) && !make_room()) return;
        admit(std::move(socket));
    }
}

// Closes the connection that has been waiting longest. Returns false if no connection is waiting.
bool ConnectionServer::make_room() {
    const auto oldest = std::ranges::min_element(reading_, {}, &Connection::since);
    if (oldest == reading_.end()) return false;
    drop(*oldest);
    return true;
}

void ConnectionServer::admit(UniqueFd socket) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    try {
        reading_.emplace_back(std::move(socket), limits_.request, budget_);
    } catch (const std::bad_alloc&) {
        return;
    }
    Connection& connection = reading_.back();
    connection.self = std::prev(reading_.end());
    connection.since = connection.last_byte = SystemClock().now();
    ++open_;
    static_cast<void>(watch(connection));
}

// Waits for bytes from CONNECTION from now on. Returns false if the system cannot do that;
// CONNECTION is then closed.
bool ConnectionServer::watch(Connection& connection) {
    epoll_event event{EPOLLIN, {.ptr = &connection}};
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, connection.socket.get(), &event) == 0)
        return true;
    drop(connection);
    return false;
}

void ConnectionServer::drop(Connection& connection) {
    --open_;
    reading_.erase(connection.self);
}

void ConnectionServer::receive(Connection& connection) {
    const ssize_t came =
        ::recv(connection.socket.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (came < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (came <= 0) return drop(connection);
    if (connection.phase == Connection::Phase::kDraining) return;
    connection.last_byte = SystemClock().now();
    try {
        read_on(connection, {buffer_.data(), static_cast<size_t>(came)});
    } catch (const std::bad_alloc&) {
        refuse(connection, 503, "");
    }
}

// Reads BYTES that arrived from CONNECTION, and then waits for more, answers a request, or closes
// the connection.
void ConnectionServer::read_on(Connection& connection, std::string_view bytes) {
    while (!bytes.empty() && read_request(connection, bytes)) {
    }
}

// Reads a request, or a part of one, from the beginning of BYTES. Returns true if the request was
// answered and another one may follow.
bool ConnectionServer::read_request(Connection& connection, std::string_view& bytes) {
    using State = RequestReader::State;
    if (connection.phase == Connection::Phase::kIdle) {
        connection.phase = Connection::Phase::kReading;
        connection.since = connection.last_byte;
    }
    RequestReader& reader = connection.reader;
    make_memory(connection, bytes.size());
    bytes.remove_prefix(reader.take(bytes));
    if (reader.state() == State::kHeadRead && !read_head(connection, bytes)) return false;
    if (reader.state() == State::kRefused) {
        refuse(connection, reader.refusal().status, reader.refusal().why);
        return false;
    }
    if (reader.state() != State::kWhole) return false;
    ++connection.requests;
    if (handler_.is_quick(reader.head())) {
        answerer_.answer(connection, Duration{0});
        settle(connection);
        return connection.is_usable;
    }
    // The next request must wait until this one is answered.
    if (reader.lease().grow(std::ssize(bytes))) {
        connection.following = bytes;
        ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
        threads_.hand_over(reading_, connection);
    } else {
        refuse(connection, 503, "no memory is left for further requests on this connection");
    }
    return false;
}

// Continues with the body of a request whose head was read. Returns false if the request is
// refused.
bool ConnectionServer::read_head(Connection& connection, std::string_view& bytes) {
    RequestReader& reader = connection.reader;
    if (const auto refusal = handler_.refuse(reader.head())) {
        if (!answer_and_drain(connection, *refusal)) drop(connection);
        return false;
    }
    reader.read_body();
    if (reader.head().wants_continue && bytes.empty() &&
        reader.state() == RequestReader::State::kBody)
        send_continue(connection);
    make_memory(connection, bytes.size());
    bytes.remove_prefix(reader.take(bytes));
    return true;
}

// Makes room for BYTES more of CONNECTION's request: refuses other requests that arrive slowly,
// until arriving requests use at most half of the budget. Refuses the request with the highest cost
// first. The cost is the request's memory times the time for which the request has used it.
void ConnectionServer::make_memory(const Connection& connection, size_t bytes) {
    const int64_t growth = connection.reader.growth(bytes);
    while (growth > 0) {
        const TimePoint now = SystemClock().now();
        int64_t held = growth;
        double cost = 0;
        Connection* dearest = nullptr;
        for (Connection& other : reading_) {
            const int64_t own = other.reader.lease().bytes();
            if (other.phase != Connection::Phase::kReading || own == 0) continue;
            held += own;
            const Duration time = now - other.since;
            if (&other == &connection || time < limits_.hold_max) continue;
            const double costs = static_cast<double>(own) * static_cast<double>(time.count());
            if (costs < cost) continue;
            cost = costs;
            dearest = &other;
        }
        if (held <= budget_.bytes_max() / 2 || dearest == nullptr) return;
        send_away(*dearest);
    }
}

// Refuses CONNECTION's request, but keeps the connection in its list, because a caller may be
// iterating over it.
void ConnectionServer::send_away(Connection& connection) noexcept {
    connection.phase = Connection::Phase::kDraining;
    try {
        ConnectionClient client(connection.socket.get(), Duration{0});
        static_cast<void>(
            write_reply(handler_.error(503,
                                       "the request arrived slowly, and other requests need the "
                                       "memory that it used: try again"),
                        {.stays_open = false}, client));
        drain(connection);
    } catch (const std::exception&) {
        // The next sweep closes the connection.
    }
}

// Answers bytes that are not a request, or that arrive too slowly.
void ConnectionServer::refuse(Connection& connection, int status, std::string_view why) {
    try {
        if (answer_and_drain(connection, handler_.error(status, why))) return;
    } catch (const std::bad_alloc&) {
        answer_no_memory(connection);
    }
    drop(connection);
}

void ConnectionServer::take_back() {
    Connections back = threads_.take_back();
    while (!back.empty()) {
        Connection& connection = back.front();
        reading_.splice(reading_.end(), back, connection.self);
        try {
            go_on_with(connection);
        } catch (const std::bad_alloc&) {
            drop(connection);
        }
    }
}

// Continues with CONNECTION after an answer: reads the next request, or waits for the client to
// close the connection.
void ConnectionServer::go_on_with(Connection& connection) {
    if (is_ending_) return drop(connection);
    const std::string following = std::exchange(connection.following, {});
    connection.last_byte = SystemClock().now();
    settle(connection);
    if (watch(connection) && connection.is_usable) read_on(connection, following);
}

void ConnectionServer::sweep() {
    using Phase = Connection::Phase;
    const TimePoint now = SystemClock().now();
    next_sweep_ = now + kSweepInterval;
    for (auto at = reading_.begin(); at != reading_.end();) {
        Connection& connection = *at++;
        const Duration time = now - connection.since;
        if (connection.phase == Phase::kIdle
                ? time > limits_.idle_max
                : connection.phase == Phase::kDraining && time > limits_.drain_max)
            drop(connection);
        else if (connection.phase == Phase::kReading &&
                 (time > limits_.request_max || now - connection.last_byte > limits_.pause_max))
            refuse(connection, 408, "the request arrived too slowly");
    }
}

}  // namespace dslaunch::server
