// Runs a program on its own terminal, a pseudo terminal that controls it. Records everything that
// the program shows there, and how it ends.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "support/job_process.h"

namespace dslaunch::test {

class PtyProcess {
  public:
    // COLUMNS is the width of the terminal; 0: the terminal does not report it.
    explicit PtyProcess(const std::vector<std::string>& command, uint16_t columns = 0)
        : PtyProcess(
              [&command] {
                  std::vector<char*> argv;
                  for (const std::string& word : command)
                      argv.push_back(const_cast<char*>(word.c_str()));
                  argv.push_back(nullptr);
                  ::execvp(argv[0], argv.data());
                  return 126;
              },
              columns) {}
    // Runs CHILD as the program. The result of CHILD is the exit code.
    explicit PtyProcess(const std::function<int()>& child, uint16_t columns = 0) {
        winsize size{};
        size.ws_col = columns;
        pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
        if (pid_ == 0) {
            ::setenv("TERM", "xterm", 1);
            ::_exit(child());
        }
    }
    PtyProcess(const PtyProcess&) = delete;
    PtyProcess& operator=(const PtyProcess&) = delete;
    ~PtyProcess() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        ::close(terminal_);
    }
    // Reads everything that the program shows until it ends. Returns its exit code, 128+n for
    // signal n, or -1 if it does not end in time.
    int wait(int limit_ms = kHangMs) {
        const auto limit = Steady::now() + std::chrono::milliseconds(limit_ms);
        int status = 0;
        for (;;) {
            const bool ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
            read_all(ended ? 0 : 5);
            if (ended) break;
            if (Steady::now() > limit) return -1;
        }
        pid_ = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    // Reads until TEXT has been shown. Returns false if it does not appear in time.
    bool wait_for(const std::string& text) {
        return wait_until([&] {
            read_all(5);
            return shown_.find(text) != std::string::npos;
        });
    }
    // Waits without reading, as if the user had pressed Ctrl-S. Returns the same as wait().
    int wait_without_reading(int limit_ms = kHangMs) {
        int status = 0;
        if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit_ms))
            return -1;
        pid_ = -1;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    [[nodiscard]] const std::string& shown() const { return shown_; }
    [[nodiscard]] pid_t pid() const { return pid_; }
    void type(const std::string& keys) const {
        const ssize_t n = ::write(terminal_, keys.data(), keys.size());
        static_cast<void>(n);
    }

  private:
    void read_all(int wait_ms) {
        pollfd entry{terminal_, POLLIN, 0};
        char block[4096];
        while (::poll(&entry, 1, wait_ms) > 0 && (entry.revents & POLLIN) != 0) {
            const ssize_t n = ::read(terminal_, block, sizeof block);
            if (n <= 0) return;
            shown_.append(block, static_cast<size_t>(n));
            wait_ms = 0;
        }
    }

    pid_t pid_ = -1;
    int terminal_ = -1;
    std::string shown_;
};

}  // namespace dslaunch::test
