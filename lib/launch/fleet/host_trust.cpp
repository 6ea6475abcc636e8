#include "launch/fleet/host_trust.h"

#include <fmt/format.h>
#include <libssh/libssh.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine/loop_on_threads.h"
#include "base/text.h"
#include "launch/network/interfaces.h"
#include "launch/transport/ssh/known_hosts.h"

namespace dslaunch::launch {
namespace {

constexpr long kSessionSeconds = 10;
constexpr size_t kThreadsMax = 16;

// The command is constant, and the key is sent to its stdin: no part of the key can be executed as
// a command.
constexpr const char* kInstallCommand =
    "exec sh -c 'umask 077; d=$HOME/.ssh; f=$d/authorized_keys; mkdir -p \"$d\" && "
    "IFS= read -r k && [ -n \"$k\" ] && : >>\"$f\" && "
    "{ [ -z \"$(tail -c 1 \"$f\")\" ] || echo >>\"$f\"; } && "
    "{ grep -qxF -e \"$k\" \"$f\" || printf \"%s\\n\" \"$k\" >>\"$f\"; }'";

std::string option_of(ssh_session session, ssh_options_e option) {
    char* text = nullptr;
    return ssh_options_get(session, option, &text) == SSH_OK ? take_string(text) : std::string();
}

using Session = std::unique_ptr<ssh_session_struct, void (*)(ssh_session)>;
using Key = std::unique_ptr<ssh_key_struct, void (*)(ssh_key)>;

void close_session(ssh_session session) {
    ssh_disconnect(session);
    ssh_free(session);
}

[[noreturn]] void fail_session(ssh_session session, const char* doing) {
    fail(ExitCode::kHosts, "{}: {}", doing, printable(ssh_get_error(session)));
}

// Returns a socket connected to ADDRESS, which the hostfile gives in addition to the host's name.
UniqueFd connect_to(const std::string& address, int port) {
    std::string error;
    const auto list = look_up(address, port, 0, &error);
    if (!list) fail(ExitCode::kHosts, "{}: {}", address, error);
    UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{kSessionSeconds, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0) {
        fail(ExitCode::kHosts, "cannot connect: {}", errno_text(errno));
    }
    return socket;
}

// Returns a connected session with exchanged keys, not logged in. Throws Error{kHosts}.
Session open_session(const HostAddress& host, const std::string& config_path) {
    Session owner(ssh_new(), close_session);
    const ssh_session session = owner.get();
    const bool no = false;
    const long seconds = kSessionSeconds;
    ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &no);
    ssh_options_set(session, SSH_OPTIONS_TIMEOUT, &seconds);
    if (ssh_options_set(session, SSH_OPTIONS_HOST, host.name.c_str()) != SSH_OK) {
        fail_session(session, "libssh refuses the host name");
    }
    if (ssh_options_parse_config(session, config_path.empty() ? nullptr : config_path.c_str()) !=
        SSH_OK) {
        fail_session(session, "cannot read the ssh configuration");
    }
    const std::string proxy = option_of(session, SSH_OPTIONS_PROXYCOMMAND);
    if (!proxy.empty() && proxy != "none") {
        fail(ExitCode::kHosts,
             "its ssh configuration uses ProxyCommand or ProxyJump, which this command does not "
             "support; use ssh-copy-id");
    }
    if (!host.user.empty()) ssh_options_set(session, SSH_OPTIONS_USER, host.user.c_str());
    if (host.port != 0) ssh_options_set(session, SSH_OPTIONS_PORT, &host.port);
    if (!host.address.empty()) {
        unsigned int port = 0;
        ssh_options_get_port(session, &port);
        socket_t fd = connect_to(host.address, static_cast<int>(port)).release();
        ssh_options_set(session, SSH_OPTIONS_FD, &fd);  // the session closes it
    }
    if (ssh_connect(session) != SSH_OK) fail_session(session, "the ssh connection failed");
    return owner;
}

void require_known(ssh_session session) {
    if (ssh_session_is_known_server(session) != SSH_KNOWN_HOSTS_OK) {
        fail(ExitCode::kHosts, "its host key differs from the one in known_hosts");
    }
}

HostKey fetch_key(const HostAddress& host, const std::string& config_path) {
    HostKey result;
    const Session session = open_session(host, config_path);
    ssh_key raw = nullptr;
    if (ssh_get_server_publickey(session.get(), &raw) != SSH_OK) {
        fail_session(session.get(), "it sent no host key");
    }
    const Key key(raw, ssh_key_free);
    result.fingerprint = fingerprint_of(key.get());
    result.type = ssh_key_type_to_char(ssh_key_type(key.get()));
    char* line = nullptr;
    if (ssh_session_export_known_hosts_entry(session.get(), &line) != SSH_OK) {
        fail_session(session.get(), "its host key cannot be written as a line of known_hosts");
    }
    result.line = std::string(trim(take_string(line))) + "\n";
    result.known_name = result.line.substr(0, result.line.find(' '));
    result.file = option_of(session.get(), SSH_OPTIONS_KNOWNHOSTS);
    switch (ssh_session_is_known_server(session.get())) {
        case SSH_KNOWN_HOSTS_OK:
            result.state = HostKeyState::kKnown;
            break;
        case SSH_KNOWN_HOSTS_CHANGED:
        case SSH_KNOWN_HOSTS_OTHER:
            result.state = HostKeyState::kChanged;
            break;
        default:
            result.state = HostKeyState::kNew;
    }
    return result;
}

KeyLogin try_key(const HostAddress& host, const std::string& config_path) {
    KeyLogin result;
    const Session session = open_session(host, config_path);
    require_known(session.get());
    result.identity = option_of(session.get(), SSH_OPTIONS_IDENTITY);
    result.user = option_of(session.get(), SSH_OPTIONS_USER);
    const int status = ssh_userauth_publickey_auto(session.get(), nullptr, "");
    result.worked = status == SSH_AUTH_SUCCESS;
    if (status == SSH_AUTH_ERROR) fail_session(session.get(), "authentication failed");
    if (!result.worked) result.error = "it accepts none of your keys";
    return result;
}

void log_in(ssh_session session, const std::string& password) {
    static_cast<void>(ssh_userauth_none(session, nullptr));
    const int methods = ssh_userauth_list(session, nullptr);
    if ((methods & SSH_AUTH_METHOD_PASSWORD) != 0 &&
        ssh_userauth_password(session, nullptr, password.c_str()) == SSH_AUTH_SUCCESS) {
        return;
    }
    if ((methods & SSH_AUTH_METHOD_INTERACTIVE) != 0) {
        int status = ssh_userauth_kbdint(session, nullptr, nullptr);
        for (int round = 0; status == SSH_AUTH_INFO && round < 4; ++round) {
            const int prompts = ssh_userauth_kbdint_getnprompts(session);
            for (int i = 0; i < prompts; ++i) {
                ssh_userauth_kbdint_setanswer(session, static_cast<unsigned>(i), password.c_str());
            }
            status = ssh_userauth_kbdint(session, nullptr, nullptr);
        }
        if (status == SSH_AUTH_SUCCESS) return;
    }
    if ((methods & (SSH_AUTH_METHOD_PASSWORD | SSH_AUTH_METHOD_INTERACTIVE)) == 0) {
        fail(ExitCode::kHosts, "it does not accept passwords; install the key there another way");
    }
    fail(ExitCode::kHosts, "it does not accept the password");
}

void install_on(const HostAddress& host, const std::string& config_path,
                const std::string& password, const std::string& public_key) {
    const Session session = open_session(host, config_path);
    require_known(session.get());
    log_in(session.get(), password);
    const std::unique_ptr<ssh_channel_struct, void (*)(ssh_channel)> channel(
        ssh_channel_new(session.get()), ssh_channel_free);
    const std::string line = public_key + "\n";
    if (channel == nullptr || ssh_channel_open_session(channel.get()) != SSH_OK ||
        ssh_channel_request_exec(channel.get(), kInstallCommand) != SSH_OK ||
        ssh_channel_write(channel.get(), line.data(), static_cast<uint32_t>(line.size())) !=
            static_cast<int>(line.size()) ||
        ssh_channel_send_eof(channel.get()) != SSH_OK) {
        fail_session(session.get(), "it did not run the command");
    }
    char block[512];
    std::string said;
    for (int n = 1; n > 0;) {
        n = ssh_channel_read(channel.get(), block, sizeof block, 1);
        if (n > 0 && said.size() < sizeof block) said.append(block, static_cast<size_t>(n));
    }
    const int status = ssh_channel_get_exit_status(channel.get());
    if (status != 0) {
        fail(ExitCode::kHosts, "the key could not be put into ~/.ssh/authorized_keys (exit {}): {}",
             status, printable(trim(said)));
    }
}

// Does WORK in a few threads for each host whose entry in WHICH is true. If WHICH is empty, does it
// for all hosts. FAILED handles the errors that WORK throws.
void for_hosts(size_t count, const std::vector<bool>& which,
               const std::function<void(size_t)>& work,
               const std::function<void(size_t, const char*)>& failed) {
    loop_on_threads(count, kThreadsMax, [&](size_t i) {
        if (!which.empty() && !which[i]) return;
        try {
            work(i);
        } catch (const Error& error) {
            failed(i, error.what());
        }
    });
}

}  // namespace

std::vector<HostKey> HostTrust::fetch_keys() const {
    std::vector<HostKey> keys(hosts_.size());
    for_hosts(
        hosts_.size(), {}, [&](size_t i) { keys[i] = fetch_key(hosts_[i], config_path_); },
        [&](size_t i, const char* error) { keys[i].error = error; });
    return keys;
}

std::vector<KeyLogin> HostTrust::try_keys(const std::vector<bool>& which) const {
    std::vector<KeyLogin> logins(hosts_.size());
    for_hosts(
        hosts_.size(), which, [&](size_t i) { logins[i] = try_key(hosts_[i], config_path_); },
        [&](size_t i, const char* error) { logins[i].error = error; });
    return logins;
}

std::vector<std::string> HostTrust::install_key(const std::vector<bool>& which,
                                                const std::string& password,
                                                const std::string& public_key) const {
    std::vector<std::string> errors(hosts_.size());
    for_hosts(
        hosts_.size(), which,
        [&](size_t i) { install_on(hosts_[i], config_path_, password, public_key); },
        [&](size_t i, const char* error) { errors[i] = error; });
    return errors;
}

}  // namespace dslaunch::launch
