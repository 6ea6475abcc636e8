// Makes hosts reachable without a password: their keys go into known_hosts, ours into their
// authorized_keys. The only place of dslaunch that hands a password on, and only to a host whose
// key is known. Sessions block, one thread each; a session that does not answer ends after 10 s.
#pragma once

#include <string>
#include <vector>

#include "launch/transport/transport.h"

namespace dslaunch::launch {

enum class HostKeyState {
    kKnown,    // known_hosts has it
    kNew,      // known_hosts has none for this host
    kChanged,  // known_hosts has another
    kError,    // the key cannot be fetched
};

struct HostKey {
    HostKeyState state = HostKeyState::kError;
    std::string error;        // why it cannot be fetched, in words
    std::string type;         // "ssh-ed25519"
    std::string fingerprint;  // "SHA256:…"
    std::string line;         // for known_hosts, with its newline
    std::string known_name;   // the name in it: HOST or [HOST]:PORT
    std::string file;         // the known_hosts file that the ssh configuration names
};

// The result of a log-in with a key.
struct KeyLogin {
    bool worked = false;
    std::string error;     // why it did not
    std::string identity;  // the first key file of the ssh configuration
    std::string user;      // user to log in as
};

class HostTrust {
  public:
    HostTrust(std::vector<HostAddress> hosts, std::string ssh_config_path)
        : hosts_(std::move(hosts)), config_path_(std::move(ssh_config_path)) {}

    // Each of these works at once on all hosts, or on hosts for which WHICH is true; one entry a
    // host.
    [[nodiscard]] std::vector<HostKey> fetch_keys() const;
    [[nodiscard]] std::vector<KeyLogin> try_keys(const std::vector<bool>& which) const;
    // Logs in with PASSWORD and appends PUBLIC_KEY, a line without newline, unless it is there.
    // Returns the error of each host, or empty. REQUIRES: is_public_key_line(public_key).
    [[nodiscard]] std::vector<std::string> install_key(const std::vector<bool>& which,
                                                       const std::string& password,
                                                       const std::string& public_key) const;

  private:
    std::vector<HostAddress> hosts_;
    std::string config_path_;
};

// Returns true for "TYPE BASE64[ COMMENT]" in one line, of characters that mean nothing to a shell
// or to sshd: no options before the key, no second line.
[[nodiscard]] bool is_public_key_line(const std::string& line);

// Returns the public key beside IDENTITY, else one of ~/.ssh/id_{ed25519,ecdsa,rsa}. Else makes a
// new ed25519 key pair at IDENTITY (empty: ~/.ssh/id_ed25519), sets MADE to its path, and returns
// its public key. Throws Error{kSetup}.
[[nodiscard]] std::string find_or_make_public_key(const std::string& identity, std::string& made);

// Appends LINES to FILE in one write; makes it and its folder (0600, 0700). Throws Error{kDisk}.
void add_known_hosts(const std::string& file, const std::string& lines);
// Removes all keys of NAME from FILE, by ssh-keygen, which keeps FILE.old. Throws Error{kSetup}.
void forget_known_host(const std::string& file, const std::string& name);

}  // namespace dslaunch::launch
