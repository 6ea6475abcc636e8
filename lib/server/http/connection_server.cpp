#include "server/http/connection_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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
#include "base/log.h"
#include "base/text.h"
#include "server/http/reply_writer.h"

namespace dslaunch::server {

namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 1024;  // connections that wait to be accepted
constexpr int kFirstFreePort = 1024;
constexpr milliseconds kSweepInterval{100};
constexpr size_t kReceiveBytes = size_t{64} << 10;
// Descriptors that are not for connections.
constexpr int kOtherDescriptors = 64;
// The stack of an answer; the deepest template needs less, whatever `ulimit -s` says.
constexpr size_t kAnswerStackBytes = size_t{8} << 20;

// Returns false if nothing happened for TIME, or the client has left.
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

int descriptors_max() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT_MAX;
    return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
}

// Errors of logging must not end a thread.
template <typename... Args>
void warn_if_possible(fmt::format_string<Args...> format, Args&&... args) noexcept {
    try {
        log_warn("serve", format, std::forward<Args>(args)...);
    } catch (const std::exception&) {
    }
}

}  // namespace

struct ConnectionServer::Connection {
    Connection(UniqueFd socket_, const RequestLimits& limits, MemoryAccount& account)
        : socket(std::move(socket_)), reader(limits, account) {}

    enum class Phase {
        kIdle,      // no byte of a request has come
        kReading,   // a part of one has
        kDraining,  // it is answered for the last time; later bytes are not read as a request
    };
    UniqueFd socket;
    RequestReader reader;
    std::string following;  // bytes after the request that is answered
    Phase phase = Phase::kIdle;
    TimePoint since;      // when the phase began
    TimePoint last_byte;  // when the client sent last
    int requests = 0;
    bool is_usable = true;       // after its answer
    Connections::iterator self;  // its place in its list
};

// The client of a connection that is answered.
class ConnectionServer::Client final : public ReplySink {
  public:
    Client(int socket, Duration pause_max) : socket_(socket), pause_max_(pause_max) {}

    [[nodiscard]] bool write(std::string_view bytes) override {
        while (!bytes.empty()) {
            const ssize_t sent =
                ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent > 0) {
                bytes.remove_prefix(static_cast<size_t>(sent));
            } else if (errno != EINTR &&
                       (errno != EAGAIN || !await(socket_, POLLOUT, pause_max_))) {
                return false;
            }
        }
        return true;
    }
    [[nodiscard]] bool is_there() const override { return !has_left(socket_); }

  private:
    int socket_;
    Duration pause_max_;
};

ConnectionServer::ConnectionServer(const ConnectionLimits& limits, MemoryAccount& account,
                                   HttpHandler& handler)
    : limits_(limits),
      account_(account),
      handler_(handler),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(kReceiveBytes) {
    if (!events_.valid() || !wake_.valid())
        fail(ExitCode::kSetup, "no descriptor is left to serve with: {}", errno_text(errno));
    limits_.connections_max =
        std::max(std::min(limits_.connections_max, descriptors_max() - kOtherDescriptors), 16);
    threads_.reserve(static_cast<size_t>(limits_.answers_max));
    epoll_event event{EPOLLIN, {.ptr = nullptr}};
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
        fail(ExitCode::kSetup, "the system cannot watch sockets: {}", errno_text(errno));
}

ConnectionServer::~ConnectionServer() = default;

int ConnectionServer::bind(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
    std::string why = error != 0 ? ::gai_strerror(error) : "";
    for (const addrinfo* at = error == 0 ? found : nullptr; at != nullptr; at = at->ai_next) {
        UniqueFd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        // Other options could let a second server share the port.
        const int on = 1;
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        sockaddr_storage address{};
        socklen_t bytes = sizeof address;
        if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) != 0 ||
            ::listen(socket.get(), kBacklog) != 0 ||
            ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
            why = errno_text(errno);
            continue;
        }
        listener_ = std::move(socket);
        return ntohs(address.ss_family == AF_INET6
                         ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                         : reinterpret_cast<const sockaddr_in&>(address).sin_port);
    }
    fail(ExitCode::kSetup,
         "cannot listen at {}:{} ({}): the port is taken (by another `dslaunch serve`?), or the "
         "address is none of this machine's{}; give another --port or --host",
         printable(host), port, why,
         port > 0 && port < kFirstFreePort ? ", or ports below 1024 need root" : "");
}

void ConnectionServer::end() noexcept {
    ending_ = true;
    const uint64_t one = 1;
    static_cast<void>(::write(wake_.get(), &one, sizeof one));
}

void ConnectionServer::run() {
    DSL_CHECK(listener_.valid(), "bind() comes first");
    // One thread is a must; it starts before anything else takes memory.
    threads_.emplace_back([this] { work(); }, kAnswerStackBytes);
    while (goes_on()) look();
    close_all();
}

bool ConnectionServer::goes_on() {
    if (!ending_) {
        // While every connection is being answered, others wait in the system's queue.
        const bool may_listen =
            open_ < static_cast<size_t>(limits_.connections_max) || !reading_.empty();
        if (may_listen != listening_) {
            epoll_event event{EPOLLIN, {.ptr = &listener_}};
            const int change = may_listen ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
            if (::epoll_ctl(events_.get(), change, listener_.get(), &event) == 0)
                listening_ = may_listen;
        }
        return true;
    }
    if (listener_.valid()) {
        ::shutdown(listener_.get(), SHUT_RDWR);
        listener_.reset();
        while (!reading_.empty()) drop(reading_.front());
    }
    return answering_ > 0;
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
        } else if (!ending_) {
            receive(*static_cast<Connection*>(what));
        }
    }
    // Accepts after the other events: to make room may end one of their connections.
    if (comes && !ending_) accept_all();
    take_back();
    if (SystemClock().now() >= next_sweep_) sweep();
}

void ConnectionServer::accept_all() {
    for (int i = 0; i < kBacklog; ++i) {
        UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
            // Without descriptors the longest wait gives way, now or at the next look.
            if ((errno == EMFILE || errno == ENFILE) && !make_room()) return;
            if (errno != ECONNABORTED && errno != EINTR && errno != EMFILE) return;
            continue;
        }
        if (open_ >= static_cast<size_t>(limits_.connections_max) && !make_room()) return;
        admit(std::move(socket));
    }
}

// Ends the connection that has been waited for longest. Returns false if there is none.
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
        reading_.emplace_back(std::move(socket), limits_.request, account_);
    } catch (const std::bad_alloc&) {
        return;
    }
    Connection& connection = reading_.back();
    connection.self = std::prev(reading_.end());
    connection.since = connection.last_byte = SystemClock().now();
    ++open_;
    static_cast<void>(watch(connection));
}

// Watches for what CONNECTION sends. Returns false if the system cannot; CONNECTION has ended.
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

// Reads BYTES that have come from CONNECTION and decides its fate: it waits for more, is answered,
// or ends.
void ConnectionServer::read_on(Connection& connection, std::string_view bytes) {
    while (!bytes.empty() && read_request(connection, bytes)) {
    }
}

// Takes a request, or a part of one, off BYTES. Returns true if it is answered and another one may
// follow.
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
        answer(connection, Duration{0});
        settle(connection);
        return connection.is_usable;
    }
    // The next request waits for the answer to this one.
    if (reader.lease().grow(std::ssize(bytes))) {
        connection.following = bytes;
        hand_over(connection);
    } else {
        refuse(connection, 503, "requests that follow each other at once find no memory");
    }
    return false;
}

// Goes on to the body of a request whose head was read. Returns false if it is refused.
bool ConnectionServer::read_head(Connection& connection, std::string_view& bytes) {
    RequestReader& reader = connection.reader;
    if (const auto refusal = handler_.refuse(reader.head())) {
        answer_and_drain(connection, *refusal);
        return false;
    }
    reader.read_body();
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    if (reader.head().wants_continue && bytes.empty() &&
        reader.state() == RequestReader::State::kBody)
        static_cast<void>(::send(connection.socket.get(), kContinue.data(), kContinue.size(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT));
    make_memory(connection, bytes.size());
    bytes.remove_prefix(reader.take(bytes));
    return true;
}

// Sends away other requests that come slowly, until BYTES more of CONNECTION have room among those
// that are coming. A request costs the others its memory times how long it has held it.
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
        if (held <= account_.bytes_max() / 2 || dearest == nullptr) return;
        send_away(*dearest);
    }
}

// Ends CONNECTION but keeps it in its list, since others may hold it at this moment.
void ConnectionServer::send_away(Connection& connection) noexcept {
    connection.phase = Connection::Phase::kDraining;
    try {
        Client client(connection.socket.get(), Duration{0});
        static_cast<void>(write_reply(
            handler_.error(503, "the request came slowly, and others need its memory: try again"),
            {.stays_open = false}, client));
        drain(connection);
    } catch (const std::exception&) {
        // It goes at the next sweep.
    }
}

// Answers bytes that are not a request, or that come too slowly.
void ConnectionServer::refuse(Connection& connection, int status, std::string_view why) {
    try {
        return answer_and_drain(connection, handler_.error(status, why));
    } catch (const std::bad_alloc&) {
    }
    static_cast<void>(::send(connection.socket.get(), kNoMemoryReply.data(), kNoMemoryReply.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT));
    drop(connection);
}

// Writes a short answer, which fits in the socket's buffer. The reading thread waits for nobody: it
// gives no time to a client who does not read.
void ConnectionServer::answer_and_drain(Connection& connection, const HttpReply& reply) {
    Client client(connection.socket.get(), Duration{0});
    const bool has_head = connection.reader.state() != RequestReader::State::kRefused &&
                          connection.reader.state() != RequestReader::State::kHead;
    const bool is_head = has_head && connection.reader.head().method == "HEAD";
    if (!write_reply(reply, {.stays_open = false, .sends_body = !is_head}, client))
        return drop(connection);
    drain(connection);
}

// Lets a client that is still sending read its answer: if the connection closed at once, its unread
// bytes would reset it.
void ConnectionServer::drain(Connection& connection) {
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.phase = Connection::Phase::kDraining;
    connection.since = SystemClock().now();
    connection.reader.reset();
}

void ConnectionServer::hand_over(Connection& connection) {
    ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
    ++answering_;
    bool is_short = false;
    {
        const std::lock_guard lock(mutex_);
        ready_.splice(ready_.end(), reading_, connection.self);
        is_short = ready_.size() > waiting_;
    }
    changed_.notify_one();
    if (!is_short || threads_.size() == threads_.capacity()) return;
    try {
        threads_.emplace_back([this] { work(); }, kAnswerStackBytes);
        short_of_threads_ = false;
    } catch (const std::exception& error) {
        // The threads that are there will do.
        if (!std::exchange(short_of_threads_, true))
            warn_if_possible("{} requests are answered at once, more wait: {}", threads_.size(),
                             error.what());
    }
}

void ConnectionServer::take_back() {
    Connections back;
    {
        const std::lock_guard lock(mutex_);
        back.swap(returned_);
    }
    while (!back.empty()) {
        Connection& connection = back.front();
        reading_.splice(reading_.end(), back, connection.self);
        --answering_;
        try {
            go_on_with(connection);
        } catch (const std::bad_alloc&) {
            drop(connection);
        }
    }
}

// Waits for the next request of CONNECTION, which may be there already, or for its end.
void ConnectionServer::go_on_with(Connection& connection) {
    if (ending_) return drop(connection);
    const std::string following = std::exchange(connection.following, {});
    connection.last_byte = SystemClock().now();
    settle(connection);
    if (watch(connection) && connection.is_usable) read_on(connection, following);
}

// Decides how CONNECTION goes on after its request is answered.
void ConnectionServer::settle(Connection& connection) {
    connection.reader.reset();
    connection.since = SystemClock().now();
    connection.phase =
        connection.is_usable ? Connection::Phase::kIdle : Connection::Phase::kDraining;
    if (!connection.is_usable) ::shutdown(connection.socket.get(), SHUT_WR);
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
            refuse(connection, 408, "the request came too slowly");
    }
}

void ConnectionServer::close_all() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    changed_.notify_all();
    threads_.clear();
}

// Answers requests, one after the other, until the server ends.
void ConnectionServer::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++waiting_;
        changed_.wait(lock, [&] { return !ready_.empty() || over_; });
        --waiting_;
        if (ready_.empty()) return;
        Connections mine;
        mine.splice(mine.end(), ready_, ready_.begin());
        lock.unlock();
        answer(mine.front(), limits_.pause_max);
        lock.lock();
        returned_.splice(returned_.end(), mine);
        const uint64_t one = 1;
        static_cast<void>(::write(wake_.get(), &one, sizeof one));
    }
}

// Answers the request of CONNECTION, and notes whether another one may follow. PAUSE_MAX: the
// longest time for which the client may read nothing.
void ConnectionServer::answer(Connection& connection, Duration pause_max) {
    Client client(connection.socket.get(), pause_max);
    try {
        connection.is_usable = write_answer(connection, client);
    } catch (const std::exception& error) {
        // The client sees that its stream has no end.
        connection.is_usable = false;
        warn_if_possible("a stream is cut off: {}", error.what());
    }
}

HttpReply ConnectionServer::reply_to(Connection& connection, const Client& client) {
    RequestReader& reader = connection.reader;
    try {
        HttpRequest request{reader.head(), reader.body(), reader.lease()};
        return handler_.answer(request, client);
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        return handler_.error(500, error.what());
    }
}

// Returns true if another request may follow. Throws what a stream throws.
bool ConnectionServer::write_answer(Connection& connection, Client& client) {
    const RequestHead& head = connection.reader.head();
    HttpReply reply;
    try {
        reply = reply_to(connection, client);
    } catch (const std::bad_alloc&) {
        static_cast<void>(client.write(kNoMemoryReply));
        return false;
    }
    const ReplyMode mode{.stays_open = head.stays_open && !ending_ && reply.status == 200 &&
                                       connection.requests < limits_.requests_max,
                         .old = head.old,
                         .sends_body = head.method != "HEAD"};
    return write_reply(reply, mode, client) && mode.stays_open;
}

}  // namespace dslaunch::server
