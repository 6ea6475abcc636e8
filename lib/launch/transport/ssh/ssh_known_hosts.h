// The known_hosts files' word on a host's key. Reads files, keeps nothing.
#pragma once

#include <libssh/libssh.h>

#include <memory>
#include <string>
#include <vector>

namespace dslaunch::launch {

// A copy of TEXT, which libssh has made and which is freed here; null is empty.
[[nodiscard]] std::string take_string(char* text);
// The SHA-256 of KEY as ssh writes it; "unknown": libssh has none.
[[nodiscard]] std::string fingerprint_of(ssh_key key);

// The keys that one host may show, those it must not, and what stands in the way.
class KnownHosts {
  public:
    // Lines of FILES (missing ones are passed over) that speak of NAME, `host` or `[host]:port`;
    // hashed names are understood. A line that cannot be parsed is passed over as ssh does.
    KnownHosts(const std::vector<std::string>& files, const std::string& name);

    enum class Verdict { kKnown, kUnknown, kChanged, kRevoked };
    [[nodiscard]] Verdict judge(ssh_key key) const;
    // The place of the line that decided kRevoked, or of the first one that speaks of the host.
    [[nodiscard]] const std::string& where() const { return where_; }
    // The first line that names a certificate authority for a host without any key of its own;
    // empty: there is none. libssh does not look at host certificates.
    [[nodiscard]] std::string only_authority() const { return keys_.empty() ? authority_ : ""; }
    // Signature algorithms of the keys it may show, as libssh's list of host key algorithms has
    // them: a server shows a key that is asked for.
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

}  // namespace dslaunch::launch
