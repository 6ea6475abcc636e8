// One libssh session as a state machine: connects, checks the host's key, authenticates, opens a
// channel, and carries bytes. Never blocks on the network and never asks the user for anything.
#pragma once

#include <libssh/libssh.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/transport/ssh/known_hosts.h"
#include "launch/transport/ssh/ssh_authentication.h"
#include "launch/transport/ssh/ssh_channel.h"
#include "launch/transport/ssh/ssh_connector.h"
#include "launch/transport/ssh/ssh_resolver.h"
#include "launch/transport/ssh/ssh_target.h"
#include "launch/transport/ssh/ssh_way.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

// The session with one host.
class SshSession {
  public:
    // INDEX: the number of the host in the events and in the resolver's answers. CONFIG_PATH: the
    // file of --ssh_config; if it is empty, the user's own configuration is read.
    SshSession(size_t index, HostAddress host, std::string config_path, SshPurpose purpose);
    SshSession(const SshSession&) = delete;
    SshSession& operator=(const SshSession&) = delete;
    ~SshSession();  // closes the socket without a farewell; does not block

    // Begins to connect. Also begins the next attempt if waits_for_retry() returns true. May start
    // a lookup in RESOLVER.
    void begin(SshResolver& resolver);
    // Takes the answer of the resolver.
    void take_addresses(const ResolvedHost& resolved);
    // Proceeds as far as possible now and adds the resulting events to EVENTS.
    void advance(std::vector<TransportEvent>& events);
    // Queues BYTES for the other side's input. close_input() ends the input after all queued bytes.
    void send(std::string_view bytes) { channel_.send(bytes); }
    void close_input() { channel_.close_input(); }
    // While HELD is true, the other side's output is not read, so the other side waits.
    void hold(bool held) { channel_.hold(held); }
    void flush();  // sends what can be sent now
    // Returns the number of queued bytes.
    [[nodiscard]] size_t unsent_bytes() const { return channel_.unsent_bytes(); }
    // Returns true while the command runs, or while the path to the other host is open.
    [[nodiscard]] bool is_open() const { return state_ == State::kRunning; }
    // Ends the session without an event.
    void abandon();

    // Returns true after the last event, or after abandon().
    [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
    // Returns true if begin() is to be called at the deadline for another attempt.
    [[nodiscard]] bool waits_for_retry() const;
    // Adds the descriptors to poll now to ENTRIES; there may be any number.
    void add_polls(std::vector<pollfd>& entries) const;
    // Returns the time at which advance() must be called even if nothing arrived.
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;

  private:
    enum class State {
        kResolving,
        kConnecting,
        kTunnel,  // the path over other hosts is not open yet
        kHandshake,
        kAuthentication,
        kOpening,
        kExec,
        kRunning,
        kWaiting,
        kEnded
    };

    bool read_configuration();
    bool configure();
    void shake_hands_over(UniqueFd connection);
    void connect_next();
    bool step();  // false: wait for the socket
    bool finish_connect();
    bool enter_tunnel();
    bool handshake();
    bool authenticate();
    bool open_channel();
    bool start_agent();
    void carry(std::vector<TransportEvent>& events);
    void check_deadline();
    void end(const std::string& cause, int exit_status = -1);
    void drop();
    [[nodiscard]] std::string session_error() const;

    size_t index_;
    HostAddress host_;
    std::string config_path_;
    SshPurpose purpose_;
    std::optional<SshTarget> target_;
    std::optional<KnownHosts> known_hosts_;
    State state_ = State::kResolving;
    ssh_session session_ = nullptr;
    SshChannel channel_;
    std::unique_ptr<SshAuthentication> authentication_;
    std::unique_ptr<SshWay> way_;  // over a ProxyCommand or other hosts; null: direct
    SshConnector connector_;       // while connecting
    int attempts_ = 0;
    std::chrono::steady_clock::time_point deadline_;
    std::optional<TransportEvent> last_event_;
};

}  // namespace dslaunch::launch
