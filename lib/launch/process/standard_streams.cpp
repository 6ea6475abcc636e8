#include "launch/process/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

namespace dslaunch::launch {
namespace {

constexpr size_t kPieceBytesMax = 64U << 10;

// Returns true if a signal that hold_end_signals() holds back is pending. Outside a job such
// signals end the program.
bool end_is_pending() {
    sigset_t pending;
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        if (::sigismember(&pending, number) == 1) return true;
    return false;
}

bool are_one(int a, int b) {
    struct stat first {
    }, second{};
    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

}  // namespace

using std::chrono::milliseconds;
using std::chrono::steady_clock;

StandardStreams::StandardStreams() {
    are_one_ = are_one(1, 2);
    for (Stream& stream : streams_) {
        stream.erases_lines = erases_lines(stream.fd);
        struct stat status {};
        if (::fstat(stream.fd, &status) != 0) continue;
        stream.is_socket = S_ISSOCK(status.st_mode);
        if (!S_ISCHR(status.st_mode) && !S_ISFIFO(status.st_mode)) continue;
        const std::string path = fmt::format("/proc/self/fd/{}", stream.fd);
        stream.reopened =
            UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    }
}

ssize_t StandardStreams::try_write(int fd, std::string_view text) {
    Stream& stream = this->stream(fd);
    const int target = stream.reopened.valid() ? stream.reopened.get() : fd;
    for (;;) {
        const ssize_t n = stream.is_socket
                              ? ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                              : ::write(target, text.data(), text.size());
        if (n >= 0) return n;
        if (errno == EINTR) continue;
        const int fault = errno;
        if (fault == EPIPE || fault == ECONNRESET) {
            stream.reader_is_gone = true;
        } else if (fault != EAGAIN && stream.fault == 0) {
            stream.fault = fault;
        }
        return -fault;
    }
}

void StandardStreams::keep(int fd, std::string_view text) {
    const size_t most = hurries_ ? kCongestedBytes : kKeptBytesMax;
    if (kept_bytes_ + text.size() > most) {
        dropped_bytes_ += static_cast<int64_t>(text.size());
        return;
    }
    // Adds TEXT to the text that is already kept for FD. If each line were kept separately, each
    // would need its own system call later.
    if (kept_.empty() || kept_.back().fd != fd || kept_.back().text.size() > kPieceBytesMax)
        kept_.push_back({fd, {}});
    kept_.back().text += text;
    kept_bytes_ += text.size();
}

void StandardStreams::write(int fd, std::string_view text) {
    write_line(fd, kNobody, text);
}

void StandardStreams::write_line(int fd, int owner, std::string_view text) {
    const std::lock_guard lock(mutex_);
    const bool is_shown = owner != kNobody && piece_owner(fd) == owner && text == piece_ + "\n" &&
                          !stream(fd).erases_lines;
    if (is_shown) piece_owner(fd) = kNobody;
    make_room(fd);
    end_piece(fd, owner);
    write_or_keep(fd, is_shown ? "\n" : text);
}

void StandardStreams::write_text(int fd, std::string_view text) {
    if (text.empty()) return;
    const std::lock_guard lock(mutex_);
    make_room(fd);
    if (!is_in_line(fd)) end_piece(fd, kNobody);
    write_or_keep(fd, text);
    is_in_line(fd) = !text.ends_with('\n');
}

void StandardStreams::write_piece(int fd, int owner, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (!kept_.empty()) return;
    make_room(fd);
    write_or_keep(
        fd, stream(fd).erases_lines ? fmt::format("\r{}\x1b[K", text) : fmt::format("{}\r", text));
    piece_owner(fd) = owner;
    piece_ = text;
}

// Makes room for text that OWNER writes on FD after a piece or within a line of write_text(), which
// a newline ends. On a terminal, erases the piece. In a file or pipe, a carriage return already
// ends the piece, so text of the same owner needs nothing more. Text of another owner begins on a
// new line.
void StandardStreams::end_piece(int fd, int owner) {
    if (std::exchange(is_in_line(fd), false)) write_or_keep(fd, "\n");
    const int before = std::exchange(piece_owner(fd), kNobody);
    if (before == kNobody) return;
    if (stream(fd).erases_lines) {
        write_or_keep(fd, "\r\x1b[K");
    } else if (before != owner) {
        write_or_keep(fd, "\n");
    }
}

bool StandardStreams::moves() const {
    const std::lock_guard lock(mutex_);
    return moving_.moves();
}

void StandardStreams::show_moving(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if ((!kept_.empty() || is_in_line(2)) && !text.empty()) return;
    write_or_keep(2, text.empty() ? moving_.end() : moving_.draw(text));
    shows_again_ = true;
}

void StandardStreams::show_moving_again() {
    const std::lock_guard lock(mutex_);
    if (kept_.empty() && shows_again_ && !is_in_line(2)) write_or_keep(2, moving_.draw_again());
}

// Erases the moving line before text is written on FD. Within a line of write_text() there is none.
// If FD is stdout, and stdout goes to another program, the other program may write on this terminal
// a moment later. The moving line is then shown again only when it gets a new text.
void StandardStreams::make_room(int fd) {
    if (!is_in_line(2)) write_or_keep(2, moving_.clear());
    if (fd == 1 && !are_one_) shows_again_ = false;
}

void StandardStreams::write_or_keep(int fd, std::string_view text) {
    if (text.empty()) return;
    if (!kept_.empty()) return keep(fd, text);  // flush() finds out when there is room again
    while (!text.empty()) {
        const ssize_t n = try_write(fd, text);
        if (n == -EAGAIN) return keep(fd, text);
        if (n < 0) return;  // the job decides what a failed write means
        text.remove_prefix(static_cast<size_t>(n));
    }
}

bool StandardStreams::reader_is_gone(int fd) const {
    const std::lock_guard lock(mutex_);
    return stream(fd).reader_is_gone;
}

int StandardStreams::fault(int fd) const {
    const std::lock_guard lock(mutex_);
    return stream(fd).fault;
}

bool StandardStreams::is_congested() const {
    const std::lock_guard lock(mutex_);
    return kept_bytes_ > kCongestedBytes;
}

bool StandardStreams::has_kept() const {
    const std::lock_guard lock(mutex_);
    return !kept_.empty();
}

void StandardStreams::hurry() {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
}

bool StandardStreams::hurries() const {
    const std::lock_guard lock(mutex_);
    return hurries_;
}

void StandardStreams::flush() {
    const std::lock_guard lock(mutex_);
    while (!kept_.empty()) {
        Piece& piece = kept_.front();
        const ssize_t n = try_write(piece.fd, piece.text);
        if (n == -EAGAIN) return;
        const size_t done = n < 0 ? piece.text.size() : static_cast<size_t>(n);
        kept_bytes_ -= done;
        piece.text.erase(0, done);
        if (piece.text.empty()) kept_.pop_front();
    }
    if (dropped_bytes_ == 0) return;
    const std::string told = fmt::format(
        "dslaunch: {} bytes of the ranks' output were dropped, because this terminal or pipe was "
        "not read\n",
        std::exchange(dropped_bytes_, 0));
    write_or_keep(2, told);
}

std::optional<milliseconds> StandardStreams::make_way(milliseconds left, int wake_fd,
                                                      bool is_ending) {
    flush();
    const auto now = steady_clock::now();
    if (is_congested() && !is_ending && now < next_look_) {
        wait(std::min(left, kTick), wake_fd);
        return std::nullopt;
    }
    next_look_ = now + kLook;
    return has_kept() ? std::min(left, kTick) : left;
}

void StandardStreams::wait(milliseconds timeout, int wake_fd) const {
    pollfd entries[2] = {{wake_fd, POLLIN, 0}, {-1, POLLOUT, 0}};
    {
        const std::lock_guard lock(mutex_);
        if (!kept_.empty()) {
            const UniqueFd& reopened = stream(kept_.front().fd).reopened;
            entries[1].fd = reopened.valid() ? reopened.get() : kept_.front().fd;
        }
    }
    static_cast<void>(::poll(entries, 2, static_cast<int>(timeout.count())));
}

void StandardStreams::drain() {
    show_moving({});
    for (const int fd : {1, 2}) {
        const std::lock_guard lock(mutex_);
        const bool ends_text = std::exchange(is_in_line(fd), false) && stream(fd).erases_lines;
        const bool ends_piece = std::exchange(piece_owner(fd), kNobody) != kNobody;
        if (ends_text || ends_piece) write_or_keep(fd, "\n");
    }
    const auto limit = steady_clock::now() + kHurry;
    for (flush(); has_kept(); flush()) {
        if (end_is_pending() || (hurries() && steady_clock::now() >= limit)) return;
        wait(milliseconds(50), -1);
    }
}

void write_last_words(std::string_view text) {
    StandardStreams().write(2, text);
}

}  // namespace dslaunch::launch
