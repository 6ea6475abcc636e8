#include "launcher/hosts/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace dslaunch::launcher {
namespace {

constexpr size_t kLineBytesMax = 4096;

// A scope that hides input; its end restores the terminal's settings.
class HiddenInput {
  public:
    explicit HiddenInput(int tty) : tty_(tty) {
        if (::tcgetattr(tty_, &before_) != 0) return;
        termios hidden = before_;
        hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        changed_ = ::tcsetattr(tty_, TCSAFLUSH, &hidden) == 0;
    }
    HiddenInput(const HiddenInput&) = delete;
    HiddenInput& operator=(const HiddenInput&) = delete;
    ~HiddenInput() {
        if (changed_) ::tcsetattr(tty_, TCSAFLUSH, &before_);
    }
    [[nodiscard]] bool works() const { return changed_; }

  private:
    int tty_;
    termios before_{};
    bool changed_ = false;
};

}  // namespace

Terminal::Terminal(int signal_fd, const std::string& why)
    : tty_(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)), signal_fd_(signal_fd) {
    if (!tty_.valid()) fail(ExitCode::kUsage, "there is no terminal to ask at: {}", why);
}

std::string Terminal::ask(const std::string& question) {
    static_cast<void>(write_full(tty_.get(), question));
    std::string line;
    for (;;) {
        pollfd entries[2] = {{tty_.get(), POLLIN, 0}, {signal_fd_, POLLIN, 0}};
        if (::poll(entries, 2, -1) < 0 && errno != EINTR) break;
        if (entries[1].revents != 0) break;
        if (entries[0].revents == 0) continue;
        char c = 0;
        const ssize_t n = ::read(tty_.get(), &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || line.size() > kLineBytesMax) break;
        if (c == '\n') return line;
        line += c;
    }
    static_cast<void>(write_full(tty_.get(), std::string_view("\n")));
    fail(ExitCode::kInterrupted, "interrupted; nothing more is done");
}

std::string Terminal::ask_hidden(const std::string& question) {
    const HiddenInput hidden(tty_.get());
    if (!hidden.works()) fail(ExitCode::kSetup, "the terminal cannot hide what is typed");
    std::string line = ask(question);
    static_cast<void>(write_full(tty_.get(), std::string_view("\n")));
    return line;
}

}  // namespace dslaunch::launcher
