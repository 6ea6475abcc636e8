// Checks who is at the two ends of an ssh connection: judges a host's key by the known_hosts files,
// and proves who we are with keys, certificates and the ssh-agent. Asks the user nothing and writes
// no file (libssh's own way writes missing .pub files).
#pragma once

#include <libssh/libssh.h>

#include <memory>
#include <string>
#include <vector>

#include "launch/transport/ssh/ssh_target.h"

namespace dslaunch::launch {

// Returns a copy of TEXT, which libssh made, and frees TEXT; null is empty.
[[nodiscard]] std::string take_string(char* text);
// Returns the SHA-256 of KEY as ssh writes it; "unknown": libssh has none.
[[nodiscard]] std::string fingerprint_of(ssh_key key);

// The keys that one host may show, the keys that it must not, and reasons against it.
class KnownHosts {
  public:
    // Reads the lines of FILES (skips missing ones) about NAME, `host` or `[host]:port`;
    // understands hashed names. Skips a line that cannot be parsed, as ssh does.
    KnownHosts(const std::vector<std::string>& files, const std::string& name);

    enum class Verdict { kKnown, kUnknown, kChanged, kRevoked };
    [[nodiscard]] Verdict judge(ssh_key key) const;
    // Returns the place of the line that decided kRevoked, or of the first one about the host.
    [[nodiscard]] const std::string& where() const { return where_; }
    // Returns the first line that names a certificate authority for a host without any key of its
    // own; empty: there is none. libssh does not look at host certificates.
    [[nodiscard]] std::string only_authority() const { return keys_.empty() ? authority_ : ""; }
    // Returns the signature algorithms of the keys it may show, in libssh's form of a list of host
    // key algorithms: a server shows a key that is asked for.
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

class SshAuthentication {
  public:
    // SESSION and TARGET must outlive this object.
    SshAuthentication(ssh_session session, const SshTarget& target);

    enum class Result { kAgain, kAccepted, kRefused };
    // Goes on as far as the server has answered. It never waits for the server, but it waits for
    // the ssh-agent.
    [[nodiscard]] Result step();
    // Returns, after kRefused: what the server takes, why our keys cannot be used, what to do.
    [[nodiscard]] std::string cause() const;

  private:
    struct Free {
        void operator()(ssh_key key) const { ssh_key_free(key); }
    };
    using Key = std::unique_ptr<ssh_key_struct, Free>;
    struct Candidate {
        std::string key_file;          // empty: whatever the ssh-agent has
        std::string certificate_file;  // empty: the key alone
    };

    [[nodiscard]] bool load();  // false: the candidate is of no use
    [[nodiscard]] Key read_private(const std::string& file);
    [[nodiscard]] int ask();
    void next();

    ssh_session session_;
    const SshTarget& target_;
    std::vector<Candidate> candidates_;
    size_t at_ = 0;
    Key offered_;  // the public half, or the certificate
    Key private_;  // null until the server takes the offered one, unless it had to be read
    bool taken_ = false;
    bool loaded_ = false;
    bool partial_ = false;
    std::string error_;
    std::string locked_file_;    // needs a passphrase
    std::string hardware_file_;  // on a FIDO device
    bool agent_refused_ = false;
};

}  // namespace dslaunch::launch
