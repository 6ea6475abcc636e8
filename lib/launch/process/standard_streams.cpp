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

#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kPieceBytesMax = 64U << 10;

// Returns true if an end signal is held back (hold_end_signals). Outside a job such signals end the
// program.
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

// Another program in front gets what is typed; no signal tells when this changes.
constexpr int kLookAgainMilliseconds = 200;

bool is_in_front() {
    return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

// Returns false if WAKE comes first. FD -1: only the time passes.
bool wait_for(int fd, short event, int wake, int milliseconds = -1) {
    std::array<pollfd, 2> wanted = {{{fd, event, 0}, {wake, POLLIN, 0}}};
    static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
    return wanted[1].revents == 0;
}

}  // namespace

using std::chrono::milliseconds;
using std::chrono::steady_clock;

StandardStreams::StandardStreams() {
    if (are_one(1, 2)) place_[2] = place_[1];
    for (const int fd : {1, 2}) {
        is_terminal_[static_cast<size_t>(fd)] = erases_lines(fd);
        const auto index = static_cast<size_t>(fd);
        struct stat status {};
        if (::fstat(fd, &status) != 0) continue;
        is_socket_[index] = S_ISSOCK(status.st_mode);
        if (!S_ISCHR(status.st_mode) && !S_ISFIFO(status.st_mode)) continue;
        const std::string path = fmt::format("/proc/self/fd/{}", fd);
        reopened_[index] =
            UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    }
}

ssize_t StandardStreams::try_write(int fd, std::string_view text) {
    const auto index = static_cast<size_t>(fd);
    const int target = reopened_[index].valid() ? reopened_[index].get() : fd;
    for (;;) {
        const ssize_t n = is_socket_[index]
                              ? ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
                              : ::write(target, text.data(), text.size());
        if (n >= 0) return n;
        if (errno == EINTR) continue;
        const int fault = errno;
        if (fault == EPIPE || fault == ECONNRESET) {
            reader_is_gone_[index] = true;
        } else if (fault != EAGAIN && faults_[index] == 0) {
            faults_[index] = fault;
        }
        return -fault;
    }
}

void StandardStreams::keep(int fd, std::string_view text) {
    const size_t most = hurry_ ? kCongestedBytes : kKeptBytesMax;
    if (kept_bytes_ + text.size() > most) {
        dropped_bytes_ += static_cast<int64_t>(text.size());
        return;
    }
    // Lines are gathered: each by itself would cost a call of the system when it is tried again.
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
    const size_t place = place_[static_cast<size_t>(fd)];
    const bool is_shown = owner != kNobody && piece_owner_[place] == owner &&
                          text == piece_ + "\n" && !is_terminal_[static_cast<size_t>(fd)];
    if (is_shown) piece_owner_[place] = kNobody;
    make_room(fd);
    end_piece(fd, owner);
    write_or_keep(fd, is_shown ? "\n" : text);
}

void StandardStreams::write_piece(int fd, int owner, std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (!kept_.empty()) return;
    const bool is_terminal = is_terminal_[static_cast<size_t>(fd)];
    make_room(fd);
    write_or_keep(fd, is_terminal ? fmt::format("\r{}\x1b[K", text) : fmt::format("{}\r", text));
    piece_owner_[place_[static_cast<size_t>(fd)]] = owner;
    piece_ = text;
}

// Makes room for text that OWNER writes on FD. On a terminal the text replaces the piece. Elsewhere
// OWNER's own text follows the return, and another's begins a line.
void StandardStreams::end_piece(int fd, int owner) {
    const size_t place = place_[static_cast<size_t>(fd)];
    const int before = std::exchange(piece_owner_[place], kNobody);
    if (before == kNobody) return;
    if (is_terminal_[static_cast<size_t>(fd)]) {
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
    if (!kept_.empty() && !text.empty()) return;
    write_or_keep(2, text.empty() ? moving_.end() : moving_.draw(text));
    shows_again_ = true;
}

void StandardStreams::show_moving_again() {
    const std::lock_guard lock(mutex_);
    if (kept_.empty() && shows_again_) write_or_keep(2, moving_.draw_again());
}

// Erases the moving line before text is written on FD. A program that reads stdout writes on this
// terminal a moment later, so that the line waits for its next text then.
void StandardStreams::make_room(int fd) {
    write_or_keep(2, moving_.clear());
    if (fd == 1 && place_[1] != place_[2]) shows_again_ = false;
}

void StandardStreams::write_or_keep(int fd, std::string_view text) {
    if (text.empty()) return;
    if (!kept_.empty()) return keep(fd, text);  // flush() finds out when there is room again
    while (!text.empty()) {
        const ssize_t n = try_write(fd, text);
        if (n == -EAGAIN) return keep(fd, text);
        if (n < 0) return;  // the job decides what that means
        text.remove_prefix(static_cast<size_t>(n));
    }
}

bool StandardStreams::reader_is_gone(int fd) const {
    const std::lock_guard lock(mutex_);
    return reader_is_gone_[fd];
}

int StandardStreams::fault(int fd) const {
    const std::lock_guard lock(mutex_);
    return faults_[fd];
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
    hurry_ = true;
}

bool StandardStreams::hurries() const {
    const std::lock_guard lock(mutex_);
    return hurry_;
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
        "dslaunch: {} bytes of the ranks' output are not shown: this terminal or pipe was not "
        "read\n",
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
            const UniqueFd& reopened = reopened_[kept_.front().fd];
            entries[1].fd = reopened.valid() ? reopened.get() : kept_.front().fd;
        }
    }
    static_cast<void>(::poll(entries, 2, static_cast<int>(timeout.count())));
}

void StandardStreams::drain() {
    show_moving({});
    for (const int fd : {1, 2}) {
        const std::lock_guard lock(mutex_);
        int& owner = piece_owner_[place_[static_cast<size_t>(fd)]];
        if (std::exchange(owner, kNobody) != kNobody) write_or_keep(fd, "\n");
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

UniqueFd stdin_for_worker() {
    const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
    if (is_terminal && !is_in_front()) return {};
    return UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
}

StdinForStarter::StdinForStarter(bool wanted) {
    if (!wanted) return;
    own_ = stdin_for_worker();
    if (::isatty(own_.get()) != 1) return;
    terminal_ = std::move(own_);
    typed_ = make_pipe();
    wake_ = make_pipe();
    set_blocking(typed_.write_end.get(), false);
    thread_ = SmallThread([this] { pass_on(); });
}

StdinForStarter::~StdinForStarter() {
    wake_.write_end.reset();
    thread_.join();
}

void StdinForStarter::pass_on() {
    const UniqueFd out = std::move(typed_.write_end);
    const int wake = wake_.read_end.get();
    std::array<char, 4096> block{};
    for (;;) {
        if (!is_in_front()) {
            if (!wait_for(-1, 0, wake, kLookAgainMilliseconds)) return;
            continue;
        }
        if (!wait_for(terminal_.get(), POLLIN, wake)) return;
        if (!is_in_front()) continue;
        const ssize_t count = ::read(terminal_.get(), block.data(), block.size());
        if (count <= 0) return;
        std::string_view left(block.data(), static_cast<size_t>(count));
        while (!left.empty()) {
            if (!wait_for(out.get(), POLLOUT, wake)) return;
            const ssize_t passed = ::write(out.get(), left.data(), left.size());
            if (passed < 0 && errno != EAGAIN && errno != EINTR) return;
            if (passed > 0) left.remove_prefix(static_cast<size_t>(passed));
        }
    }
}

void add_stdin_words(std::vector<std::string>& words, const StdinForStarter& input) {
    if (input.fd() < 0) return;
    words.insert(words.end(), {"--worker-stdin", std::to_string(STDIN_FILENO)});
    if (input.is_terminal()) words.emplace_back("--worker-asks");
}

}  // namespace dslaunch::launch
