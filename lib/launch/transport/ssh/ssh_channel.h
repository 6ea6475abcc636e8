// The channel of an ssh session: the bytes to and from a command, or to another host. Never blocks.
#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process/line_splitter.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The purpose of a session's channel: a command, or a path to another host (ProxyJump).
struct SshPurpose {
    std::string command;
    std::string forward_host;  // if not empty, the channel leads to this host
    int forward_port = 0;
    std::vector<HostAddress> jumps;  // if not empty, used instead of the configuration's
    int depth = 0;  // the number of indirect paths already in use on the route here

    // Returns true if the channel leads to another host.
    [[nodiscard]] bool forwards() const { return !forward_host.empty(); }
};

// A channel of an ssh connection. Bytes may be queued before it is open. INDEX: the number of the
// host, for the events of the channel.
class SshChannel {
  public:
    explicit SshChannel(size_t index) : index_(index) {}
    SshChannel(const SshChannel&) = delete;
    SshChannel& operator=(const SshChannel&) = delete;
    // Frees the channel. REQUIRES: its session still exists, or drop() was called.
    ~SshChannel() { drop(); }

    // Opens the channel of SESSION for PURPOSE, but does not start its command. Returns SSH_OK,
    // SSH_AGAIN (call it again) or SSH_ERROR.
    [[nodiscard]] int open(ssh_session session, const SshPurpose& purpose);
    // Starts COMMAND in the open channel; returns what open() returns.
    [[nodiscard]] int start(const std::string& command);
    // Frees the channel; bytes that wait to be sent stay.
    void drop();

    // Queues BYTES for the other side's input.
    void send(std::string_view bytes) { outbox_.append(bytes); }
    // Ends the other side's input after the queued bytes.
    void close_input() { closes_when_sent_ = true; }
    // While HELD is true, the other side's output stays in libssh, which makes the other side wait.
    void hold(bool held) { is_held_ = held; }
    // Sends as many queued bytes as possible now. REQUIRES: the channel is open.
    void write_outbox();
    // Returns the number of queued bytes.
    [[nodiscard]] size_t unsent_bytes() const { return outbox_.size(); }
    // Reads at most a few blocks of data that has arrived, and adds them to EVENTS.
    void read(std::vector<TransportEvent>& events);
    // Returns true if libssh contains bytes that no poll() will report.
    [[nodiscard]] bool has_unread() const { return unread_[1] || (unread_[0] && !is_held_); }

    // The end of the other side's program.
    struct End {
        bool is_closed = false;  // false: the connection was lost
        int exit_status = -1;    // -1: unknown
    };
    // Returns the end of the program; nothing while its output is being read.
    [[nodiscard]] std::optional<End> end();
    // Returns the time at which end() must be called even if nothing arrives.
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;

  private:
    // Reads at most a few blocks.
    void read_stream(bool is_stderr, std::vector<TransportEvent>& events);
    // A callback of libssh: notes that data of a stream arrived when libssh read from the socket.
    static int note_data(ssh_session session, ssh_channel channel, void* data, uint32_t length,
                         int is_stderr, void* self);

    size_t index_;
    ssh_channel channel_ = nullptr;
    ssh_channel_callbacks_struct callbacks_{};
    std::string outbox_;
    bool closes_when_sent_ = false;
    bool is_input_closed_ = false;
    bool is_held_ = false;
    bool unread_[2] = {};  // stdout and stderr: libssh's buffer may contain bytes
    LineSplitter stderr_lines_;
    std::optional<std::chrono::steady_clock::time_point> output_ended_;
};

}  // namespace dslaunch::launch
