// Tools for tests of a job's output: a job of two ranks, and scopes in which stdout and stderr lead
// to files or to a terminal.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "launch/plan/job_spec.h"
#include "support/catch.h"
#include "support/job_process.h"

namespace dslaunch::test {

using launch::JobSpec;
using launch::PlannedNode;
using launch::PlannedWorker;
using launch::TargetKind;

// Returns a job of KIND with two ranks on one host. OUTPUT is its output folder; empty: none.
inline JobSpec two_ranks(TargetKind kind, const std::string& output) {
    JobSpec spec;
    spec.target_kind = kind;
    spec.world_size = 2;
    spec.output_directory = output;
    PlannedNode node;
    node.name = "n0";
    for (int rank = 0; rank < 2; ++rank) {
        PlannedWorker worker;
        worker.environment.rank = rank;
        worker.environment.world_size = 2;
        worker.command = {"program", "--api-key=hunter2"};
        node.workers.push_back(worker);
    }
    spec.nodes = {node};
    return spec;
}

// Leads descriptors 1 and 2 to files while this object lives.
class Captured {
  public:
    Captured() {
        for (const int fd : {1, 2}) {
            saved_[fd - 1] = ::dup(fd);
            const UniqueFd file(::open((folder_.path() + "/" + std::to_string(fd)).c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, 0600));
            ::dup2(file.get(), fd);
        }
    }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;
    ~Captured() { restore(); }
    void restore() {
        for (const int fd : {1, 2}) {
            if (saved_[fd - 1] < 0) continue;
            ::dup2(saved_[fd - 1], fd);
            ::close(saved_[fd - 1]);
            saved_[fd - 1] = -1;
        }
    }
    [[nodiscard]] std::string text(int fd) const { return folder_.read(std::to_string(fd)); }

  private:
    TemporaryFolder folder_;
    int saved_[2] = {-1, -1};
};

// Leads descriptor 2, and also 1 unless it is a pipe, to a terminal of COLUMNS while this object
// lives.
class OnTerminal {
  public:
    explicit OnTerminal(uint16_t columns, bool has_stdout = true)
        : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
        REQUIRE(::grantpt(master_.get()) == 0);
        REQUIRE(::unlockpt(master_.get()) == 0);
        terminal_ = UniqueFd(::open(::ptsname(master_.get()), O_RDWR | O_NOCTTY));
        REQUIRE(terminal_.valid());
        winsize size{};
        size.ws_col = columns;
        REQUIRE(::ioctl(terminal_.get(), TIOCSWINSZ, &size) == 0);
        ::setenv("TERM", "xterm", 1);
        ::dup2(terminal_.get(), 2);
        if (has_stdout) ::dup2(terminal_.get(), 1);
    }
    // Returns the text that was shown since the last call. A mark shows where it ends.
    [[nodiscard]] std::string shown() const {
        static_cast<void>(write_full(terminal_.get(), std::string_view("|")));
        std::string text;
        const bool came = wait_until([&] {
            char bytes[4096];
            const ssize_t n = ::read(master_.get(), bytes, sizeof bytes);
            if (n > 0) text.append(bytes, static_cast<size_t>(n));
            return text.ends_with("|");
        });
        REQUIRE(came);
        text.pop_back();
        return text;
    }

  private:
    UniqueFd master_;
    UniqueFd terminal_;
};

inline const std::string kErased = "\r\x1b[J";

// Returns the bytes that show LINE.
inline std::string moving(const std::string& line) {
    return "\r" + line + "\x1b[J\r";
}

}  // namespace dslaunch::test
