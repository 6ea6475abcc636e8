#include "launcher/tune/watched_child.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/text.h"
#include "launch/process/spawn.h"

namespace dslaunch::launcher {
namespace {

constexpr size_t kMessagesMax = 64 << 10;
using Clock = std::chrono::steady_clock;

// Reads the bytes that FD has at this moment, and appends them to TEXT. Closes FD when its input
// has ended.
void read_some(UniqueFd& fd, std::string& text) {
    std::array<char, kReadBytes> bytes;
    const ssize_t count = ::read(fd.get(), bytes.data(), bytes.size());
    if (count > 0) text.append(bytes.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) fd.reset();
}

// Passes the whole lines of TEXT to ON_LINE, and removes them from TEXT. Returns false if ON_LINE
// returned false; the remaining lines are then dropped.
bool take_lines(std::string& text, const std::function<bool(std::string_view)>& on_line) {
    bool goes_on = true;
    size_t begin = 0;
    for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
        if (goes_on && !on_line(std::string_view(text).substr(begin, end - begin))) goes_on = false;
    text.erase(0, begin);
    return goes_on;
}

// Waits for the three descriptors of one child, until a deadline.
class Watch {
  public:
    Watch(WatchedChild child, int signal_fd) : child_(std::move(child)), signal_fd_(signal_fd) {}

    ChildResult run(const std::function<bool(std::string_view)>& on_line,
                    Clock::time_point deadline);

  private:
    bool wait_until(Clock::time_point deadline, bool sees_signals);
    void stop(ChildEnd why);
    void kill_late();

    WatchedChild child_;
    int signal_fd_;
    std::string lines_;
    ChildResult result_;
    bool is_stopped_ = false;
    Clock::time_point killed_at_;
};

// Waits for something to read and reads it. Returns true if a signal is pending.
bool Watch::wait_until(Clock::time_point deadline, bool sees_signals) {
    std::array<pollfd, 3> fds = {{{child_.lines.get(), POLLIN, 0},
                                  {child_.messages.get(), POLLIN, 0},
                                  {sees_signals ? signal_fd_ : -1, POLLIN, 0}}};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int wait_ms = static_cast<int>(std::clamp<int64_t>(left + 1, 0, 1000));
    if (::poll(fds.data(), fds.size(), wait_ms) <= 0) return false;
    if (fds[0].revents != 0) read_some(child_.lines, lines_);
    if (fds[1].revents != 0) read_some(child_.messages, result_.messages);
    if (result_.messages.size() > 2 * kMessagesMax)
        result_.messages.erase(0, result_.messages.size() - kMessagesMax);
    return fds[2].revents != 0;
}

void Watch::stop(ChildEnd why) {
    if (is_stopped_) return;
    is_stopped_ = true;
    result_.end = why;
    ::kill(child_.pid, SIGTERM);
    killed_at_ = Clock::now() + kEndMax;
}

void Watch::kill_late() {
    if (!is_stopped_ || Clock::now() < killed_at_) return;
    ::kill(-child_.pid, SIGKILL);
    child_.lines.reset();
    child_.messages.reset();
}

ChildResult Watch::run(const std::function<bool(std::string_view)>& on_line,
                       Clock::time_point deadline) {
    while (child_.lines.valid() || child_.messages.valid()) {
        if (wait_until(is_stopped_ ? killed_at_ : deadline, !is_stopped_))
            stop(ChildEnd::kInterrupted);
        if (!take_lines(lines_,
                        [&](std::string_view line) { return is_stopped_ || on_line(line); }))
            stop(ChildEnd::kAsked);
        if (Clock::now() >= deadline) stop(ChildEnd::kTimeOver);
        kill_late();
    }
    result_.exit_code = launch::wait_for_end(child_.pid);
    return std::move(result_);
}

}  // namespace

ChildResult watch(WatchedChild child, const std::function<bool(std::string_view)>& on_line,
                  std::chrono::steady_clock::time_point deadline, int signal_fd) {
    return Watch(std::move(child), signal_fd).run(on_line, deadline);
}

std::string cause_of(const std::string& messages) {
    constexpr std::string_view kError = "dslaunch: error: ";
    constexpr std::string_view kOfWorker = " error worker: ";  // after the time of a log line
    std::string last, error;
    for (const std::string& line : split(messages, '\n')) {
        if (line.empty()) continue;
        last = line;
        // The first line of a message about a config gives the number of problems. Each problem
        // follows in an indented line.
        if (line.starts_with("  ") && !error.empty()) {
            error += (error.ends_with(':') ? " " : "; ") + line.substr(2);
            continue;
        }
        if (line.starts_with(kError)) error = line.substr(kError.size());
        if (const size_t at = line.find(kOfWorker); at == 12)
            error = line.substr(at + kOfWorker.size());
    }
    return printable(error.empty() ? last : error);
}

}  // namespace dslaunch::launcher
