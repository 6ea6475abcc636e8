// Replaces stdout or stderr by a pipe of a test: a pipe without a reader, or a full one.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/fd.h"

namespace dslaunch::test {

// A pipe that replaces FD (1 or 2) while this object exists. SIGPIPE is ignored from then on, until
// the process ends.
class PipedStream {
  public:
    explicit PipedStream(int fd) : fd_(fd), saved_(::dup(fd)), pipe_(make_pipe()) {
        ::signal(SIGPIPE, SIG_IGN);
        ::dup2(pipe_.write_end.get(), fd_);
    }
    PipedStream(const PipedStream&) = delete;
    PipedStream& operator=(const PipedStream&) = delete;
    ~PipedStream() { restore(); }
    void restore() {
        if (!saved_.valid()) return;
        ::dup2(saved_.get(), fd_);
        saved_.reset();
    }
    // Closes the reader's end.
    void close_reader() { pipe_.read_end.reset(); }
    // Fills the pipe until it is full.
    void fill() const {
        const std::string block(4096, 'x');
        const int end = pipe_.write_end.get();
        ::fcntl(end, F_SETFL, ::fcntl(end, F_GETFL) | O_NONBLOCK);
        while (::write(end, block.data(), block.size()) > 0) {
        }
        while (::write(end, block.data(), 1) > 0) {
        }
        ::fcntl(end, F_SETFL, ::fcntl(end, F_GETFL) & ~O_NONBLOCK);
    }

  private:
    int fd_;
    UniqueFd saved_;
    Pipe pipe_;
};

}  // namespace dslaunch::test
