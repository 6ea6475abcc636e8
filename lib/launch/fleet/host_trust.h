// Makes hosts reachable without a password: adds their keys to known_hosts, and our key to their
// authorized_keys. Only this part of dslaunch passes a password on, and only to a host whose key is
// known. Sessions block, each in one thread; a session that does not answer ends after 10 s.
#pragma once

#include <string>
#include <vector>

#include "launch/transport/transport.h"

namespace dslaunch::launch {

// A host's key, compared with known_hosts.
enum class HostKeyState {
    kKnown,    // known_hosts contains this key
    kNew,      // known_hosts contains no key for this host
    kChanged,  // known_hosts contains a different key
    kError,    // the key cannot be fetched
};

// The key that a host shows.
struct HostKey {
    HostKeyState state = HostKeyState::kError;
    std::string error;        // why it cannot be fetched, in words
    std::string type;         // "ssh-ed25519"
    std::string fingerprint;  // "SHA256:…"
    std::string line;         // for known_hosts, with its newline
    std::string known_name;   // the host's name in known_hosts: HOST or [HOST]:PORT
    std::string file;         // the known_hosts file that the ssh configuration names
};

// The result of a login with a key.
struct KeyLogin {
    bool worked = false;
    std::string error;     // why it did not work
    std::string identity;  // the first key file of the ssh configuration
    std::string user;      // user to log in as
};

// The hosts of one `dslaunch hosts trust`.
class HostTrust {
  public:
    HostTrust(std::vector<HostAddress> hosts, std::string ssh_config_path)
        : hosts_(std::move(hosts)), config_path_(std::move(ssh_config_path)) {}

    // These functions work on all hosts at the same time, and return one entry per host. If a
    // function has a parameter WHICH, it skips hosts whose entry in WHICH is false.
    [[nodiscard]] std::vector<HostKey> fetch_keys() const;
    // Tries to log in with the user's keys.
    [[nodiscard]] std::vector<KeyLogin> try_keys(const std::vector<bool>& which) const;
    // Logs in with PASSWORD and appends PUBLIC_KEY, a line without a newline, to authorized_keys,
    // unless the file contains it. Returns each host's error, or an empty text. REQUIRES:
    // is_public_key_line(public_key).
    [[nodiscard]] std::vector<std::string> install_key(const std::vector<bool>& which,
                                                       const std::string& password,
                                                       const std::string& public_key) const;

  private:
    std::vector<HostAddress> hosts_;
    std::string config_path_;
};

}  // namespace dslaunch::launch
