// One libssh session as a state machine: connect, check the host's key, authenticate, open a
// channel, carry bytes. Never blocks on the network and never asks the user for anything.
#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <netdb.h>
#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/process/line_splitter.h"
#include "launch/transport/ssh/ssh_known_hosts.h"
#include "launch/transport/ssh/ssh_target.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct Resolved {
    size_t host = 0;
    std::shared_ptr<addrinfo> addresses;  // shared only because the list's deleter is not a plain
                                          // delete
    std::string error;                    // not empty: in words
};

// Looks up host names in its own threads, so that a slow name server holds no session. A lookup
// cannot be cancelled: its thread ends by itself and owns what it touches.
class SshResolver {
  public:
    SshResolver();
    // Asks for NAME; the answer carries HOST. FAMILY: AF_UNSPEC, AF_INET or AF_INET6. At most 32
    // lookups run at a time, the others wait.
    void ask(size_t host, const std::string& name, int port, int family);
    // Returns a descriptor that is readable when answers wait.
    [[nodiscard]] int fd() const;
    [[nodiscard]] std::vector<Resolved> take();

  private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

class SshSession;

// The way of a session to a host that it does not connect to itself: through the user's
// ProxyCommand, or through a channel of a session with another host (ProxyJump), which may itself
// go over another. Stands between two SshSessions; same thread as both.
class SshWay {
  public:
    [[nodiscard]] static bool is_needed(const SshTarget& target);
    // TARGET must outlive this object. DEPTH: the number of ways that already lead here.
    SshWay(size_t index, const SshTarget& target, const std::string& config_path, int depth);
    SshWay(const SshWay&) = delete;
    SshWay& operator=(const SshWay&) = delete;
    ~SshWay();  // ends the command or the session

    void begin(SshResolver& resolver);  // begins, or tries again what waits for another attempt
    void take_addresses(const Resolved& resolved);
    void advance();
    // Returns a socket that leads to the host, once; invalid while the way is not open.
    [[nodiscard]] UniqueFd take_connection();
    // Returns the reason why there is no way, or no more; empty: not known.
    [[nodiscard]] std::string failure();
    // Returns the reason after the connection's end: a command that closes it ends a bit later.
    [[nodiscard]] std::string failure_after_end();
    // Returns true after a failure that may only mean that the host closed the connection.
    [[nodiscard]] bool may_retry() const { return may_retry_; }

    [[nodiscard]] bool waits_for_retry() const;
    void add_polls(std::vector<pollfd>& entries) const;
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;

  private:
    void start_command();
    void make_sockets();
    void carry();

    size_t index_;
    const SshTarget& target_;
    std::string config_path_;
    int depth_;
    std::string failure_;
    bool may_retry_ = false;
    UniqueFd connection_;  // the session's end
    // ProxyCommand
    pid_t command_ = -1;
    UniqueFd command_errors_;
    std::string last_words_;
    // ProxyJump
    std::string jump_name_;
    std::unique_ptr<SshSession> jump_;
    UniqueFd tunnel_;     // our end
    std::string output_;  // output of the jump, for the session
};

// The purpose of a session's channel: a command, or a way to another host (ProxyJump).
struct SshPurpose {
    std::string command;
    std::string forward_host;  // not empty: no command, but a connection to there
    int forward_port = 0;
    std::vector<HostAddress> jumps;  // not empty: go over these, whatever the configuration says
};

class SshSession {
  public:
    SshSession(size_t index, HostAddress host, std::string config_path, SshPurpose purpose,
               int depth = 0);
    SshSession(const SshSession&) = delete;
    SshSession& operator=(const SshSession&) = delete;
    ~SshSession();  // closes the socket without a farewell; does not block

    // Begins, or begins again if it waits for another attempt; may ask the resolver.
    void begin(SshResolver& resolver);
    void take_addresses(const Resolved& resolved);
    // Goes as far as is possible now and adds what happened.
    void advance(std::vector<TransportEvent>& events);
    void send(std::string_view bytes) { outbox_.append(bytes); }
    void close_input() { close_when_sent_ = true; }
    // While held, the other side's output stays with libssh, which then makes it wait.
    void hold(bool held) { held_ = held; }
    void flush();  // sends what can be sent now
    [[nodiscard]] size_t unsent_bytes() const { return outbox_.size(); }
    [[nodiscard]] bool is_open() const { return state_ == State::kRunning; }
    void abandon();

    [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
    [[nodiscard]] bool waits_for_retry() const;
    // Adds the descriptors to poll now; any number of entries.
    void add_polls(std::vector<pollfd>& entries) const;
    // Returns the time at which advance() must be called even if nothing arrived.
    [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;

  private:
    enum class State {
        kResolving,
        kConnecting,
        kTunnel,  // the way over other hosts is not open yet
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
    bool set_algorithms();
    void shake_hands_over(UniqueFd connection);
    void connect_next();
    bool step();  // false: wait for the socket
    bool finish_connect();
    bool enter_tunnel();
    bool handshake();
    bool check_host_key();
    bool authenticate();
    bool open_channel();
    bool start_agent();
    void carry(std::vector<TransportEvent>& events);
    // Takes no more than some blocks.
    void read_stream(bool is_stderr, std::vector<TransportEvent>& events);
    void read_all(std::vector<TransportEvent>& events);
    // Returns true if libssh holds bytes that no poll() will report.
    [[nodiscard]] bool has_unread() const { return unread_[1] || (unread_[0] && !held_); }
    // Notes, as libssh's callback, that data of either stream came in when it read from the socket.
    static int note_data(ssh_session session, ssh_channel channel, void* data, uint32_t length,
                         int is_stderr, void* self);
    void write_outbox();
    void check_deadline();
    void end(const std::string& cause, int exit_status = -1);
    void drop();
    [[nodiscard]] std::string session_error() const;

    size_t index_;
    HostAddress host_;
    std::string config_path_;
    SshPurpose purpose_;
    int depth_;  // number of jumps
    std::optional<SshTarget> target_;
    std::optional<KnownHosts> known_hosts_;
    State state_ = State::kResolving;
    ssh_session session_ = nullptr;
    ssh_channel channel_ = nullptr;
    std::unique_ptr<SshAuthentication> authentication_;
    std::unique_ptr<SshWay> way_;          // over a ProxyCommand or other hosts; null: direct
    UniqueFd socket_;                      // while connecting; then the session's
    std::shared_ptr<addrinfo> addresses_;  // see Resolved
    const addrinfo* next_address_ = nullptr;
    std::string connect_error_;
    std::string outbox_;
    bool close_when_sent_ = false;
    bool input_closed_ = false;
    bool held_ = false;
    bool unread_[2] = {};  // stdout and stderr: maybe bytes in libssh's buffer
    ssh_channel_callbacks_struct channel_callbacks_{};
    LineSplitter stderr_lines_;
    int attempts_ = 0;
    std::chrono::steady_clock::time_point deadline_;
    std::optional<std::chrono::steady_clock::time_point> output_ended_;
    std::optional<TransportEvent> last_event_;
};

}  // namespace dslaunch::launch
