#include "launch/process/stdin_for_starter.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

namespace dslaunch::launch {
namespace {

// The interval at which a background process checks whether it is in the foreground again. No
// signal reports this change.
constexpr int kLookAgainMilliseconds = 200;

bool is_in_front() {
    return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

// Waits for EVENT on FD, but at most MILLISECONDS (-1: without limit). Returns false if WAKE
// becomes readable first. FD may be -1: no event.
bool wait_for(int fd, short event, int wake, int milliseconds = -1) {
    std::array<pollfd, 2> wanted = {{{fd, event, 0}, {wake, POLLIN, 0}}};
    static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
    return wanted[1].revents == 0;
}

}  // namespace

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
