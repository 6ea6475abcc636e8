// An agent's connection to its launcher. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "launch/protocol/frame.h"
#include "launch/transport/join/join_channel.h"

namespace dslaunch::launch {

// Two descriptors, and the frames that arrive and leave through them.
class LauncherConnection {
  public:
    // CHANNEL encodes and decodes the bytes of the descriptors, which the caller owns. OUT_FD does
    // not block.
    LauncherConnection(int in_fd, int out_fd, JoinChannel channel);
    LauncherConnection(const LauncherConnection&) = delete;
    LauncherConnection& operator=(const LauncherConnection&) = delete;

    // Returns the descriptor to read from; -1 if the launcher sends nothing more.
    [[nodiscard]] int in_fd() const { return in_fd_; }
    // Returns the descriptor to write to; -1 if nobody listens any more.
    [[nodiscard]] int out_fd() const { return out_fd_; }
    // These functions stop using a descriptor, without closing it. close_output() drops the queue.
    void close_input() { in_fd_ = -1; }
    void close_output();

    enum class Input { kBytes, kNothing, kEnd };
    // Reads the bytes that have arrived. Returns kNothing if there are none yet, and kEnd if the
    // launcher has closed the connection. Throws Error{kHosts} with the reason if the bytes are
    // not the launcher's.
    [[nodiscard]] Input read();
    // Returns the next frame that has arrived. Throws Error{kInternal} if the bytes are no frame,
    // or if the first frame is not a hello.
    [[nodiscard]] std::optional<Frame> next();
    // Returns true after next() has returned a hello.
    [[nodiscard]] bool is_greeted() const { return is_greeted_; }

    // Queues BYTES for the launcher. Drops them if nobody listens any more.
    void say(std::string_view bytes);
    // Sends as many queued bytes as possible. Returns false if it finds that nobody listens any
    // more.
    [[nodiscard]] bool flush();
    // Returns the number of queued bytes.
    [[nodiscard]] size_t unsent_bytes() const { return channel_.to_connection().size(); }

  private:
    int in_fd_;
    int out_fd_;
    JoinChannel channel_;
    FrameDecoder frames_{false};
    bool is_greeted_ = false;
};

}  // namespace dslaunch::launch
