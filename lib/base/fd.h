// UniqueFd, which closes a file descriptor automatically, and functions that read and write all
// bytes or report an error. A call that fails with EINTR is repeated.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch {

// The buffer size for one read from a socket or a pipe.
inline constexpr size_t kReadBytes = 64U << 10;

// The owner of a file descriptor. It closes the descriptor when it is destroyed. The value -1 means
// that it owns no descriptor.
class UniqueFd {
  public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.fd_, -1));
        return *this;
    }
    ~UniqueFd() { reset(); }

    // release() returns the descriptor without closing it; reset() closes it and owns FD instead.
    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] bool valid() const { return fd_ >= 0; }
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1);

  private:
    int fd_ = -1;
};

// The two ends of a pipe, each closed by its owner.
struct Pipe {
    UniqueFd read_end;
    UniqueFd write_end;
};

// Makes a close-on-exec pipe. Throws Error{kSetup} when the descriptor limit is reached.
[[nodiscard]] Pipe make_pipe();

// Reads until the span is full or the file ends. Returns the bytes read, or -errno. May block.
[[nodiscard]] ssize_t read_full(int fd, std::span<std::byte> into);

// Writes all bytes. Returns 0, or -errno on failure. May block.
[[nodiscard]] int write_full(int fd, std::span<const std::byte> from);
[[nodiscard]] int write_full(int fd, std::string_view from);

// Returns the content of the whole file. Throws Error{kInput} that names the path if the file
// cannot be read or is larger than BYTES_MAX.
[[nodiscard]] std::string read_file(const std::string& path, size_t bytes_max);

}  // namespace dslaunch
