// Determines how the built-in ssh connects to one host: the user's ssh configuration with every
// token expanded and every default filled in, or a refusal that names host, file, line and
// directive. Contacts no host.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/transport/transport.h"

namespace dslaunch::launch {

// Everything that a session needs to know about one host.
struct SshTarget {
    std::string name;       // name in the hostfile
    std::string host_name;  // host to connect to
    int port = 22;
    std::string user;
    std::string key_name;  // name to look up in known_hosts: `host` or `[host]:port`
    std::vector<std::string> known_hosts_files;
    std::vector<std::string> identity_files;
    std::vector<std::string> certificate_files;
    bool identities_only = false;
    bool use_agent = true;
    std::string agent_socket;        // empty: SSH_AUTH_SOCK
    std::string proxy_command;       // empty: none
    std::vector<HostAddress> jumps;  // ProxyJump: the hosts on the path, in order; empty: none
    int address_family = 0;          // AF_UNSPEC, AF_INET, AF_INET6
    std::string bind_address;        // empty: any
    std::chrono::seconds connect_max{10};
    bool compression = false;
    int rsa_bits_min = 0;      // 0: libssh's own limit
    uint64_t rekey_bytes = 0;  // 0: libssh's own limit
    uint32_t rekey_s = 0;      // 0: none
    // A directive that lists algorithms: its keyword in lower case, its list, its FILE:LINE.
    struct Algorithms {
        std::string keyword;
        std::string list;
        std::string where;
    };
    std::vector<Algorithms> algorithms;  // Ciphers, MACs, ...
    std::string unused_credentials;      // other credentials in the configuration, "X (FILE:LINE)"
};

// Resolves HOST. Throws Error{kUsage} if libssh does not support what the configuration asks for,
// or if the configuration is unreadable.
[[nodiscard]] SshTarget resolve_ssh_target(const HostAddress& host, const std::string& config_path);

// Parses a list in the form of ProxyJump: hosts as "[user@]host[:port]" or "ssh://...", separated
// by commas. Throws Error{kUsage}; the message begins with WHERE, the place of the list.
[[nodiscard]] std::vector<HostAddress> parse_proxy_jump(const std::string& text,
                                                        const std::string& where);

}  // namespace dslaunch::launch
