#include "launch/agent/launcher_connection.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {

LauncherConnection::LauncherConnection(int in_fd, int out_fd, JoinChannel channel)
    : in_fd_(in_fd), out_fd_(out_fd), channel_(std::move(channel)) {}

void LauncherConnection::close_output() {
    out_fd_ = -1;
    channel_.to_connection().clear();
}

LauncherConnection::Input LauncherConnection::read() {
    char block[kReadBytes];
    const ssize_t n = ::read(in_fd_, block, sizeof block);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return Input::kNothing;
    if (n <= 0) {
        in_fd_ = -1;
        return Input::kEnd;
    }
    channel_.receive(std::string_view(block, static_cast<size_t>(n)));
    return Input::kBytes;
}

std::optional<Frame> LauncherConnection::next() {
    frames_.append(channel_.take_received());
    std::optional<Frame> frame = frames_.next();
    if (!frame) return frame;
    if (!is_greeted_ && frame->kind != FrameKind::kHello)
        fail(ExitCode::kInternal, "the first frame is not a hello");
    is_greeted_ = true;
    return frame;
}

void LauncherConnection::say(std::string_view bytes) {
    if (out_fd_ >= 0) channel_.say(bytes);
}

bool LauncherConnection::flush() {
    if (out_fd_ < 0 || send_now(out_fd_, channel_.to_connection()) != Sending::kGone) return true;
    close_output();
    return false;
}

}  // namespace dslaunch::launch
