#include "launch/transport/ssh/ssh_channel.h"

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kStatusLimit{1};
// The largest number of blocks that one session reads before other sessions are served.
constexpr int kBlocksPerRound = 4;
constexpr int kRoundsMax = 4;

}  // namespace

int SshChannel::open(ssh_session session, const SshPurpose& purpose) {
    if (channel_ == nullptr) {
        channel_ = ssh_channel_new(session);
        if (channel_ == nullptr) return SSH_ERROR;
        callbacks_ = {};
        ssh_callbacks_init(&callbacks_);
        callbacks_.userdata = this;
        callbacks_.channel_data_function = note_data;
        ssh_set_channel_callbacks(channel_, &callbacks_);
    }
    return purpose.forwards() ? ssh_channel_open_forward(channel_, purpose.forward_host.c_str(),
                                                         purpose.forward_port, "127.0.0.1", 0)
                              : ssh_channel_open_session(channel_);
}

int SshChannel::start(const std::string& command) {
    return ssh_channel_request_exec(channel_, command.c_str());
}

void SshChannel::drop() {
    if (channel_ != nullptr) ssh_channel_free(std::exchange(channel_, nullptr));
    unread_[0] = unread_[1] = false;
}

int SshChannel::note_data(ssh_session, ssh_channel, void*, uint32_t, int is_stderr, void* self) {
    static_cast<SshChannel*>(self)->unread_[is_stderr != 0 ? 1 : 0] = true;
    return 0;  // bytes consumed: none
}

void SshChannel::read_stream(bool is_stderr, std::vector<TransportEvent>& events) {
    char block[kReadBytes];
    for (int i = 0; i < kBlocksPerRound; ++i) {
        const int n = ssh_channel_read_nonblocking(channel_, block, sizeof block, is_stderr);
        if (n <= 0) {
            unread_[is_stderr ? 1 : 0] = false;
            return;
        }
        const std::string_view bytes(block, static_cast<size_t>(n));
        if (!is_stderr) {
            events.push_back({TransportEvent::Kind::kBytes, index_, std::string(bytes), -1});
            continue;
        }
        for (std::string& line : split(stderr_lines_.add(bytes), '\n')) {
            if (!line.empty()) {
                events.push_back({TransportEvent::Kind::kDiagnostic, index_, std::move(line), -1});
            }
        }
    }
}

void SshChannel::read(std::vector<TransportEvent>& events) {
    for (int round = 0; round < kRoundsMax; ++round) {
        // Reading from either stream takes packets of both streams from the socket.
        if (!is_held_) read_stream(false, events);
        read_stream(true, events);
        if (!has_unread()) return;
    }
}

void SshChannel::write_outbox() {
    while (!outbox_.empty()) {
        const auto length = static_cast<uint32_t>(std::min(outbox_.size(), kReadBytes));
        const int n = ssh_channel_write(channel_, outbox_.data(), length);
        if (n <= 0) break;
        outbox_.erase(0, static_cast<size_t>(n));
    }
    if (outbox_.empty() && closes_when_sent_ && !std::exchange(is_input_closed_, true)) {
        ssh_channel_send_eof(channel_);
    }
    ssh_blocking_flush(ssh_channel_get_session(channel_), 0);
}

std::optional<SshChannel::End> SshChannel::end() {
    if (has_unread() || is_held_) return std::nullopt;
    // If data arrived together with a close, libssh reports the close late. Therefore the command
    // also counts as ended if its output has ended and its exit status is known. Without a status,
    // the command counts as ended a second after its output.
    const int exit_status = ssh_channel_get_exit_status(channel_);  // takes packets as well
    if (has_unread()) return std::nullopt;
    if (ssh_channel_is_eof(channel_) != 0 && !output_ended_) output_ended_ = steady_clock::now();
    const bool is_closed = ssh_channel_is_closed(channel_) != 0 ||
                           (output_ended_ && (exit_status >= 0 ||
                                              steady_clock::now() > *output_ended_ + kStatusLimit));
    const bool is_connected = ssh_is_connected(ssh_channel_get_session(channel_)) != 0;
    if (!is_closed && is_connected) return std::nullopt;
    return End{is_closed, exit_status};
}

std::optional<steady_clock::time_point> SshChannel::deadline() const {
    if (has_unread()) return steady_clock::now();
    if (output_ended_) return *output_ended_ + kStatusLimit;
    return std::nullopt;
}

}  // namespace dslaunch::launch
