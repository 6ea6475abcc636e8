// Resolves how the built-in ssh connects to one host: the user's ssh configuration with every token
// expanded and every default filled in, or a refusal that names host, file, line and directive.
// Contacts nobody.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct SshTarget {
    std::string name;       // name in the hostfile
    std::string host_name;  // host to connect to
    int port = 22;
    std::string user;
    std::string key_name;  // looked up in known_hosts: `host`, or `[host]:port`
    std::vector<std::string> known_hosts_files;
    std::vector<std::string> identity_files;
    std::vector<std::string> certificate_files;
    bool identities_only = false;
    bool use_agent = true;
    std::string agent_socket;        // empty: SSH_AUTH_SOCK
    std::string proxy_command;       // empty: none
    std::vector<HostAddress> jumps;  // ProxyJump: the last one reaches the host, reached over those
                                     // before it; empty: none
    int address_family = 0;          // AF_UNSPEC, AF_INET, AF_INET6
    std::string bind_address;        // empty: any
    std::chrono::seconds connect_max{10};
    bool compression = false;
    int rsa_bits_min = 0;      // 0: libssh's own limit
    uint64_t rekey_bytes = 0;  // 0: libssh's own limit
    uint32_t rekey_s = 0;      // 0: none
    struct Algorithms {
        std::string keyword;
        std::string list;
        std::string where;
    };
    std::vector<Algorithms> algorithms;  // Ciphers, MACs, ...
    std::string unused_credentials;      // other credentials in the configuration, "X (FILE:LINE)"
};

// Resolves HOST. Throws Error{kUsage}: libssh cannot do it, or the configuration is unreadable.
[[nodiscard]] SshTarget resolve_ssh_target(const HostAddress& host, const std::string& config_path);

// Parses "[user@]host[:port]" or "ssh://...", separated by commas, as ProxyJump has them. Throws
// Error{kUsage} that names WHERE.
[[nodiscard]] std::vector<HostAddress> parse_proxy_jump(const std::string& text,
                                                        const std::string& where);

}  // namespace dslaunch::launch
