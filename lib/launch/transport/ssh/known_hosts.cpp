#include "launch/transport/ssh/known_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "base/text.h"

namespace dslaunch::launch {
std::string take_string(char* text) {
    std::string copy = text == nullptr ? "" : text;
    ssh_string_free_char(text);
    return copy;
}

std::string fingerprint_of(ssh_key key) {
    unsigned char* hash = nullptr;
    size_t length = 0;
    if (ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &length) != 0)
        return "unknown";
    std::string text =
        take_string(ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, length));
    ssh_clean_pubkey_hash(&hash);
    return text;
}

KnownHosts::KnownHosts(const std::vector<std::string>& files, const std::string& name) {
    for (const std::string& path : files) read(path, name);
    // If no key is listed for `[host]:port`, the host may show a key that is listed for its name
    // without a port. The ssh program does the same.
    const size_t bracket = name.find(']');
    if (!keys_.empty() || !name.starts_with('[') || bracket == std::string::npos) return;
    for (const std::string& path : files) read(path, name.substr(1, bracket - 1));
}

void KnownHosts::read(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    std::string text;
    for (int number = 1; std::getline(file, text); ++number) {
        std::string line(trim(text));
        std::replace(line.begin(), line.end(), '\t', ' ');
        if (line.empty() || line.front() == '#') continue;
        std::string marker;
        if (line.front() == '@') {
            const size_t end = line.find(' ');
            if (end == std::string::npos) continue;
            marker = line.substr(0, end);
            line = trim(std::string_view(line).substr(end));
        }
        ssh_knownhosts_entry* raw = nullptr;
        if (ssh_known_hosts_parse_line(name.c_str(), line.c_str(), &raw) != SSH_OK) continue;
        Entry entry(raw);
        const std::string where = fmt::format("{}:{}", printable(path), number);
        if (marker.empty()) {
            if (keys_.empty()) where_ = where;
            keys_.push_back(std::move(entry));
        } else if (marker == "@revoked") {
            revoked_.emplace_back(std::move(entry), where);
        } else if (authority_.empty()) {
            authority_ = where;
        }
    }
}

KnownHosts::Verdict KnownHosts::judge(ssh_key key) const {
    const auto is_same = [&](const Entry& entry) {
        return ssh_key_cmp(entry->publickey, key, SSH_KEY_CMP_PUBLIC) == 0;
    };
    for (const auto& [entry, where] : revoked_) {
        if (!is_same(entry)) continue;
        where_ = where;
        return Verdict::kRevoked;
    }
    if (std::any_of(keys_.begin(), keys_.end(), is_same)) return Verdict::kKnown;
    return keys_.empty() ? Verdict::kUnknown : Verdict::kChanged;
}

std::vector<std::string> KnownHosts::algorithms() const {
    std::vector<std::string> list;
    for (const Entry& entry : keys_) {
        const ssh_keytypes_e type = ssh_key_type(entry->publickey);
        if (type == SSH_KEYTYPE_RSA) {
            list.insert(list.end(), {"rsa-sha2-512", "rsa-sha2-256"});
        } else {
            list.emplace_back(ssh_key_type_to_char(type));
        }
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
}

std::string objection_to_host(ssh_session session, const KnownHosts& known, const SshTarget& target,
                              const std::string& name) {
    ssh_key key = nullptr;
    if (ssh_get_server_publickey(session, &key) != SSH_OK)
        return fmt::format("host key verification failed: {}", printable(ssh_get_error(session)));
    const std::string print = fingerprint_of(key);
    const KnownHosts::Verdict verdict = known.judge(key);
    ssh_key_free(key);
    switch (verdict) {
        case KnownHosts::Verdict::kKnown:
            return "";
        case KnownHosts::Verdict::kRevoked:
            return fmt::format("host key verification failed: its key {} is revoked at {}", print,
                               known.where());
        case KnownHosts::Verdict::kChanged:
            return fmt::format(
                "host key verification failed: its key {} is not the one at {}; if the host was "
                "installed again, remove the old key with `ssh-keygen -R {}`",
                print, known.where(), target.key_name);
        case KnownHosts::Verdict::kUnknown:
            break;
    }
    return fmt::format(
        "host key verification failed: its key {} is in no known_hosts file ({}); connect once "
        "with `ssh {}` and compare the key",
        print, printable(join(target.known_hosts_files, ", ")), name);
}

}  // namespace dslaunch::launch
