#include "launch/transport/ssh/ssh_session_options.h"

#include <fmt/format.h>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

// Returns the options of libssh that KEYWORD of the configuration sets.
std::vector<ssh_options_e> options_of(const std::string& keyword) {
    if (keyword == "ciphers") return {SSH_OPTIONS_CIPHERS_C_S, SSH_OPTIONS_CIPHERS_S_C};
    if (keyword == "macs") return {SSH_OPTIONS_HMAC_C_S, SSH_OPTIONS_HMAC_S_C};
    if (keyword == "kexalgorithms") return {SSH_OPTIONS_KEY_EXCHANGE};
    if (keyword == "hostkeyalgorithms") return {SSH_OPTIONS_HOSTKEYS};
    return {SSH_OPTIONS_PUBLICKEY_ACCEPTED_TYPES};
}

std::string set_algorithms(ssh_session session, const SshTarget& target,
                           const std::vector<std::string>& known) {
    // A server shows a key of the first type that is requested, so the types in known_hosts are
    // requested first.
    if (!known.empty()) {
        ssh_options_set(session, SSH_OPTIONS_HOSTKEYS,
                        fmt::format("^{}", join(known, ",")).c_str());
    }
    for (const SshTarget::Algorithms& entry : target.algorithms) {
        for (const ssh_options_e option : options_of(entry.keyword)) {
            if (ssh_options_set(session, option, entry.list.c_str()) == SSH_OK) continue;
            return fmt::format("{}: libssh does not support `{} {}`; give --launcher openssh",
                               entry.where, entry.keyword, printable(entry.list));
        }
    }
    return "";
}

}  // namespace

std::string set_session_options(ssh_session session, const SshTarget& target,
                                const std::vector<std::string>& known) {
    const bool no = false;
    ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &no);
    if (ssh_options_set(session, SSH_OPTIONS_HOST, target.host_name.c_str()) != SSH_OK)
        return "libssh refuses the host name: " + printable(ssh_get_error(session));
    ssh_options_set(session, SSH_OPTIONS_USER, target.user.c_str());
    ssh_options_set(session, SSH_OPTIONS_PORT, &target.port);
    // objection_to_host() compares keys itself; libssh must not read known_hosts files of its own.
    ssh_options_set(session, SSH_OPTIONS_KNOWNHOSTS, "/dev/null");
    ssh_options_set(session, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null");
    if (!target.agent_socket.empty())
        ssh_options_set(session, SSH_OPTIONS_IDENTITY_AGENT, target.agent_socket.c_str());
    if (target.compression) ssh_options_set(session, SSH_OPTIONS_COMPRESSION, "yes");
    if (target.rsa_bits_min > 0)
        ssh_options_set(session, SSH_OPTIONS_RSA_MIN_SIZE, &target.rsa_bits_min);
    if (target.rekey_bytes > 0)
        ssh_options_set(session, SSH_OPTIONS_REKEY_DATA, &target.rekey_bytes);
    if (target.rekey_s > 0) ssh_options_set(session, SSH_OPTIONS_REKEY_TIME, &target.rekey_s);
    ssh_set_blocking(session, 0);
    return set_algorithms(session, target, known);
}

}  // namespace dslaunch::launch
