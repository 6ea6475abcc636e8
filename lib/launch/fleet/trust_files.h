// The user's own ssh files on which trust is based: key pairs and known_hosts.
#pragma once

#include <string>

namespace dslaunch::launch {

// Returns true if LINE has the form "TYPE BASE64[ COMMENT]", is a single line, has no options
// before the key, and contains no character with a special meaning to a shell or to sshd.
[[nodiscard]] bool is_public_key_line(const std::string& line);

// Returns the public key of IDENTITY, else one of ~/.ssh/id_{ed25519,ecdsa,rsa}. If there is no
// such key, makes a new ed25519 key pair at IDENTITY (empty: ~/.ssh/id_ed25519), sets MADE to its
// path, and returns its public key. Throws Error{kSetup}.
[[nodiscard]] std::string find_or_make_public_key(const std::string& identity, std::string& made);

// Appends LINES to FILE in one write; creates the file (0600) and its folder (0700) if they are
// missing. Throws Error{kDisk}.
void add_known_hosts(const std::string& file, const std::string& lines);
// Removes all keys of NAME from FILE with ssh-keygen, which keeps FILE.old. Throws Error{kSetup}.
void forget_known_host(const std::string& file, const std::string& name);

}  // namespace dslaunch::launch
