// One libssh session as a state machine: connect, check the host's key, authenticate, start the
// agent, carry bytes. Never blocks and never asks the user for anything.
#pragma once

#include <libssh/libssh.h>
#include <netdb.h>

#include <libssh/callbacks.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/line_splitter.h"
#include "launch/ssh_resolver.h"
#include "launch/transport.h"

namespace dslaunch {

class SshSession {
  public:
    SshSession(size_t index, HostAddress host, std::string config_path, std::string command);
    SshSession(const SshSession&) = delete;
    SshSession& operator=(const SshSession&) = delete;
    ~SshSession();  // closes the socket without a farewell; does not block

    // Begins (or begins again); may ask the resolver.
    void begin(SshResolver& resolver);
    void take_addresses(const Resolved& resolved);
    // Goes as far as is possible now and adds what happened.
    void advance(std::vector<TransportEvent>& events);
    void send(std::string_view bytes) { outbox_.append(bytes); }
    void close_input() { close_when_sent_ = true; }
    // While held, what the agent writes stays with libssh, which then lets the host wait.
    void hold(bool held) { held_ = held; }
    void abandon();

    [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
    [[nodiscard]] bool waits_for_retry() const { return state_ == State::kWaiting; }
    [[nodiscard]] int fd() const;        // -1: nothing to poll now
    [[nodiscard]] short events() const;  // for poll
    // When advance() is to be called even if nothing arrived.
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;

  private:
    enum class State {
        kResolving,
        kConnecting,
        kHandshake,
        kAuthentication,
        kOpening,
        kExec,
        kRunning,
        kWaiting,
        kEnded
    };

    bool configure();
    void connect_next();
    bool step();  // false: wait for the socket
    bool finish_connect();
    bool handshake();
    bool check_host_key();
    bool authenticate();
    bool open_channel();
    bool start_agent();
    void carry(std::vector<TransportEvent>& events);
    // Whether anything was there; takes no more than some blocks.
    bool read_stream(bool is_stderr, std::vector<TransportEvent>& events);
    // False: there may be more.
    bool read_all(std::vector<TransportEvent>& events);
    void write_outbox();
    void end(const std::string& cause, int exit_status = -1);
    void drop();
    [[nodiscard]] std::string session_error() const;

    size_t index_;
    HostAddress host_;
    std::string config_path_;
    std::string command_;
    State state_ = State::kResolving;
    ssh_session session_ = nullptr;
    ssh_channel channel_ = nullptr;
    ssh_callbacks_struct callbacks_{};
    UniqueFd socket_;                      // while connecting; then the session's
    std::shared_ptr<addrinfo> addresses_;  // as in Resolved
    const addrinfo* next_address_ = nullptr;
    std::string connect_error_;
    std::string outbox_;
    bool close_when_sent_ = false;
    bool input_closed_ = false;
    bool held_ = false;
    bool has_more_ = false;    // was not read to the end, so that other sessions have their turn
    bool key_locked_ = false;  // a key needs a passphrase, which nobody is asked for
    LineSplitter stderr_lines_;
    int attempts_ = 0;
    std::chrono::steady_clock::time_point deadline_;
    std::optional<std::chrono::steady_clock::time_point> output_ended_;
    std::optional<TransportEvent> last_event_;
};

}  // namespace dslaunch
