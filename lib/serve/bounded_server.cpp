#include "serve/bounded_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

namespace dslaunch::serve {

namespace {

using std::chrono::milliseconds;

// An idle connection learns so late that the server ends.
constexpr milliseconds kEndLookInterval{100};
// What a client still sends is read for so long, so that it gets to read its answer.
constexpr milliseconds kDrainMax{500};
constexpr size_t kRequestsMax = 1000;  // of one connection
constexpr const char* kForm = "application/x-www-form-urlencoded";

// The connection that this thread answers.
thread_local const RequestStream* answered = nullptr;

// Connections as tasks for a fixed number of threads. As many again wait here, and more in the
// kernel's queue, which is bounded: accepting stops meanwhile.
class BoundedTasks final : public httplib::TaskQueue {
  public:
    // As many of THREADS as the system lets start. Throws Error{kSetup} for none.
    explicit BoundedTasks(int threads) {
        try {
            for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
        } catch (const std::system_error& error) {
            if (threads_.empty())
                fail(ExitCode::kSetup, "no thread can be started to answer: {}", error.what());
            log_warn("serve", "{} connections at once in place of {}: {}", threads_.size(), threads,
                     error.what());
        }
    }

    void enqueue(std::function<void()> task) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return tasks_.size() < threads_.size() || ending_; });
        tasks_.push_back(std::move(task));
        changed_.notify_all();
    }

    void shutdown() override {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    void work() {
        for (;;) {
            std::function<void()> task;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return !tasks_.empty() || ending_; });
                if (tasks_.empty()) return;
                task = std::move(tasks_.front());
                tasks_.pop_front();
            }
            changed_.notify_all();
            task();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<std::function<void()>> tasks_;
    bool ending_ = false;
    std::vector<std::thread> threads_;
};

// A client at a socket.
class SocketStream final : public RequestStream {
  public:
    // IS_ENDING: nothing that a client has still to send is waited for long.
    SocketStream(int socket, const ConnectionLimits& limits, const std::atomic<bool>& is_ending)
        : RequestStream(limits.head_bytes_max),
          socket_(socket),
          limits_(limits),
          is_ending_(is_ending) {}

    [[nodiscard]] bool await_request(const std::function<bool()>& open) override {
        const TimePoint limit = SystemClock().now() + limits_.idle_max;
        while (open() && SystemClock().now() < limit) {
            if (!has_bytes() && !await(POLLIN, kEndLookInterval)) continue;
            request_limit_ = SystemClock().now() + limits_.request_max;
            return true;
        }
        return false;
    }

    [[nodiscard]] bool is_there() const override {
        char byte = 0;
        if (has_bytes()) return true;
        const ssize_t came = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        return came > 0 || (came < 0 && errno == EAGAIN);
    }
    [[nodiscard]] bool is_readable() const override {
        return has_bytes() || await(POLLIN, time_left());
    }
    [[nodiscard]] bool is_writable() const override {
        return await(POLLOUT, limits_.pause_max) && is_there();
    }

    ssize_t write(const char* bytes, size_t length) override {
        while (await(POLLOUT, limits_.pause_max)) {
            const ssize_t sent = ::send(socket_, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0 || (errno != EAGAIN && errno != EINTR)) return sent;
        }
        return -1;
    }
    void get_remote_ip_and_port(std::string& ip, int& port) const override {
        ip.clear();
        port = 0;
    }
    void get_local_ip_and_port(std::string& ip, int& port) const override {
        ip.clear();
        port = 0;
    }
    [[nodiscard]] socket_t socket() const override { return socket_; }

    // The client gets to read what was written, though it is sending still.
    void drain() {
        ::shutdown(socket_, SHUT_WR);
        const TimePoint limit = SystemClock().now() + kDrainMax;
        std::array<char, 4096> unread;
        while (SystemClock().now() < limit && await(POLLIN, limit - SystemClock().now()) &&
               ::recv(socket_, unread.data(), unread.size(), 0) > 0) {
        }
    }

  protected:
    [[nodiscard]] ssize_t receive(char* into, size_t bytes_max) override {
        if (!has_bytes()) {
            if (!await_bytes()) return -1;
            const ssize_t came = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
            if (came <= 0) return came;
            begin_ = 0;
            end_ = static_cast<size_t>(came);
        }
        const size_t taken = std::min(bytes_max, end_ - begin_);
        std::memcpy(into, buffer_.data() + begin_, taken);
        begin_ += taken;
        return static_cast<ssize_t>(taken);
    }

  private:
    [[nodiscard]] bool has_bytes() const { return begin_ < end_; }
    [[nodiscard]] Duration time_left() const {
        return std::min<Duration>(limits_.pause_max, request_limit_ - SystemClock().now());
    }
    [[nodiscard]] bool await_bytes() const {
        const TimePoint limit = SystemClock().now() + time_left();
        std::optional<TimePoint> end;
        for (;;) {
            const TimePoint now = SystemClock().now();
            if (is_ending_ && !end) end = now + kDrainMax;
            const TimePoint until = std::min(limit, end.value_or(limit));
            if (await(POLLIN, std::min<Duration>(kEndLookInterval, until - now))) return true;
            if (SystemClock().now() >= until) return false;
        }
    }
    // False: nothing happened for TIME, or the connection is broken.
    [[nodiscard]] bool await(short events, Duration time) const {
        pollfd entry{socket_, events, 0};
        const auto ms = std::chrono::ceil<milliseconds>(std::max(time, Duration{0})).count();
        int ready = 0;
        do {
            ready = ::poll(&entry, 1, static_cast<int>(ms));
        } while (ready < 0 && errno == EINTR);
        return ready == 1 && (entry.revents & events) != 0;
    }

    int socket_;
    const ConnectionLimits& limits_;
    const std::atomic<bool>& is_ending_;
    TimePoint request_limit_;
    std::array<char, 4096> buffer_;
    size_t begin_ = 0, end_ = 0;
};

}  // namespace

void RequestStream::begin_request() {
    in_head_ = true;
    head_bytes_ = 0;
}

void RequestStream::begin_body(BodyKind kind, uint64_t length) {
    in_head_ = false;
    body_ = kind;
    body_left_ = length;
}

bool RequestStream::at_boundary() const {
    return !in_head_ && body_ == BodyKind::kOfLength && body_left_ == 0;
}

ssize_t RequestStream::read(char* into, size_t bytes_max) {
    if (in_head_) {
        if (head_bytes_ >= head_bytes_max_) return -1;
        // The head is read byte by byte; more at once would be of the body.
        const ssize_t came = receive(into, 1);
        if (came > 0) head_bytes_ += came;
        return came;
    }
    if (body_ == BodyKind::kRefused) return 0;
    // The library would read on behind the body, and without end in chunks.
    bytes_max = static_cast<size_t>(std::min<uint64_t>(bytes_max, body_left_));
    if (bytes_max == 0) return body_ == BodyKind::kInChunks ? -1 : 0;
    const ssize_t came = receive(into, bytes_max);
    if (came > 0) body_left_ -= static_cast<uint64_t>(came);
    return came;
}

BoundedServer::BoundedServer(int connections_max, ConnectionLimits limits) : limits_(limits) {
    new_task_queue = [connections_max] { return new BoundedTasks(connections_max); };
}

bool BoundedServer::client_is_there() {
    DSL_CHECK(answered != nullptr, "no request is answered here");
    return answered->is_there();
}

void BoundedServer::answer(RequestStream& stream) {
    answered = &stream;
    const auto open = [this] { return !is_ending_; };
    for (size_t left = kRequestsMax; left > 0 && stream.await_request(open); --left) {
        stream.begin_request();
        bool is_closed = false;
        const bool was_written =
            process_request(stream, left == 1, is_closed, [&](httplib::Request& request) {
                request.ranges.clear();  // no answer has parts that could be asked for
                // curl says so of any body, and the library then takes 8 KiB at most.
                if (request.get_header_value("Content-Type").find(kForm) != std::string::npos)
                    request.headers.erase("Content-Type");
                begin_body(request, stream);
            });
        if (!was_written || is_closed || !stream.at_boundary()) break;
    }
    answered = nullptr;
}

void BoundedServer::begin_body(const httplib::Request& request, RequestStream& stream) const {
    using BodyKind = RequestStream::BodyKind;
    if (request.has_header("Transfer-Encoding"))
        return stream.begin_body(BodyKind::kInChunks, payload_max_length_);
    if (!request.has_header("Content-Length")) return stream.begin_body(BodyKind::kOfLength, 0);
    const auto length = parse_int(request.get_header_value("Content-Length"));
    const bool is_taken =
        length && *length >= 0 && static_cast<uint64_t>(*length) <= payload_max_length_;
    stream.begin_body(is_taken ? BodyKind::kOfLength : BodyKind::kRefused,
                      static_cast<uint64_t>(is_taken ? *length : 0));
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
    const UniqueFd owned(socket);
    SocketStream stream(socket, limits_, is_ending_);
    answer(stream);
    if (!stream.at_boundary()) stream.drain();
    return true;
}

void BoundedServer::run() {
    if (!is_ending_) listen_after_bind();
    has_run_ = true;
}

void BoundedServer::end() {
    if (is_ending_.exchange(true)) return;
    while (!has_run_ && !is_running()) std::this_thread::sleep_for(milliseconds(1));
    // The library's own stop() passes over a wish that comes before it listens, and it cuts the
    // streams that are under way.
    if (is_running()) ::shutdown(svr_sock_, SHUT_RDWR);
}

}  // namespace dslaunch::serve
