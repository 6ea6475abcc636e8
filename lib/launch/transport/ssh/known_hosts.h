// Checks a host's key against the known_hosts files. Asks the user nothing and writes no file.
#pragma once

#include <libssh/libssh.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

// Returns a copy of TEXT, which libssh allocated, and frees TEXT; null gives an empty string.
[[nodiscard]] std::string take_string(char* text);
// Returns the SHA-256 of KEY in ssh's notation; "unknown" if libssh returns none.
[[nodiscard]] std::string fingerprint_of(ssh_key key);

// The entries of the known_hosts files for one host: the keys that the host may show, and the keys
// that it must not show.
class KnownHosts {
  public:
    // Reads the lines about NAME, `host` or `[host]:port`, in FILES (skips missing files);
    // understands hashed names. Skips a line that cannot be parsed, as ssh does.
    KnownHosts(const std::vector<std::string>& files, const std::string& name);

    // The verdict on a key that a host shows. kKnown: the host may show it. kUnknown: no key of the
    // host is known. kChanged: the host may show only other keys. kRevoked: the host must not show
    // it.
    enum class Verdict { kKnown, kUnknown, kChanged, kRevoked };
    // Returns the verdict on KEY, and sets where().
    [[nodiscard]] Verdict judge(ssh_key key) const;
    // Returns the file and line of the entry that made judge() return kRevoked. After any other
    // verdict, returns the file and line of the first key of the host.
    [[nodiscard]] const std::string& where() const { return where_; }
    // If the files contain no key of the host, returns the first line that names a certificate
    // authority for it; empty if there is none. libssh does not support host certificates.
    [[nodiscard]] std::string only_authority() const { return keys_.empty() ? authority_ : ""; }
    // Returns the signature algorithms of the keys that the host may show, as a list of host key
    // algorithms in libssh's form. A server that gets this list shows one of these keys.
    [[nodiscard]] std::vector<std::string> algorithms() const;

  private:
    struct Free {
        void operator()(ssh_knownhosts_entry* entry) const { ssh_knownhosts_entry_free(entry); }
    };
    using Entry = std::unique_ptr<ssh_knownhosts_entry, Free>;
    void read(const std::string& path, const std::string& name);

    std::vector<Entry> keys_;
    std::vector<std::pair<Entry, std::string>> revoked_;
    std::string authority_;
    mutable std::string where_;
};

// Returns the reason not to trust the server that SESSION is connected to; empty if KNOWN contains
// the server's key. The text contains the server's names and files, from TARGET, and advice to the
// user, with the host's NAME.
[[nodiscard]] std::string objection_to_host(ssh_session session, const KnownHosts& known,
                                            const SshTarget& target, const std::string& name);

}  // namespace dslaunch::launch
