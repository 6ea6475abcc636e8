#include "launch/transport/ssh/ssh_known_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

// Refuses: libssh would otherwise let OpenSSL ask on the terminal for an old key's passphrase.
int refuse_passphrase(const char*, char*, size_t, int, int, void* locked) {
    *static_cast<bool*>(locked) = true;
    return -1;
}

bool is_readable(const std::string& path) {
    return ::access(path.c_str(), R_OK) == 0;
}

bool is_hardware(ssh_key key) {
    const ssh_keytypes_e type = ssh_key_type(key);
    return type == SSH_KEYTYPE_SK_ECDSA || type == SSH_KEYTYPE_SK_ED25519;
}

}  // namespace

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
    // A host at another port may show the key that it has under its bare name, as with ssh.
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

SshAuthentication::SshAuthentication(ssh_session session, const SshTarget& target)
    : session_(session), target_(target) {
    if (target.use_agent && !target.identities_only) candidates_.emplace_back();
    for (const std::string& file : target.identity_files) {
        if (is_readable(file + "-cert.pub")) candidates_.push_back({file, file + "-cert.pub"});
        for (const std::string& certificate : target.certificate_files) {
            candidates_.push_back({file, certificate});
        }
    }
    for (const std::string& file : target.identity_files) candidates_.push_back({file, {}});
    // With IdentitiesOnly the agent is asked last, for keys of the list that are locked here.
    if (target.use_agent && target.identities_only) candidates_.emplace_back();
}

void SshAuthentication::next() {
    ++at_;
    offered_.reset();
    private_.reset();
    taken_ = false;
    loaded_ = false;
}

SshAuthentication::Key SshAuthentication::read_private(const std::string& file) {
    bool locked = false;
    ssh_key key = nullptr;
    const int status =
        ssh_pki_import_privkey_file(file.c_str(), nullptr, refuse_passphrase, &locked, &key);
    if (status == SSH_OK) return Key(key);
    if (locked && locked_file_.empty()) locked_file_ = file;
    return nullptr;
}

bool SshAuthentication::load() {
    const Candidate& candidate = candidates_[at_];
    if (candidate.key_file.empty()) {
        // Keys that were not listed are offered only where a listed one could be among them.
        return !target_.identities_only || !locked_file_.empty() || !hardware_file_.empty();
    }
    if (!is_readable(candidate.key_file)) return false;
    ssh_key key = nullptr;
    if (!candidate.certificate_file.empty()) {
        if (ssh_pki_import_cert_file(candidate.certificate_file.c_str(), &key) != SSH_OK) {
            return false;
        }
        offered_.reset(key);
        return true;
    }
    if (ssh_pki_import_pubkey_file((candidate.key_file + ".pub").c_str(), &key) == SSH_OK) {
        offered_.reset(key);
    } else {
        private_ = read_private(candidate.key_file);
        if (private_ == nullptr ||
            ssh_pki_export_privkey_to_pubkey(private_.get(), &key) != SSH_OK) {
            return false;
        }
        offered_.reset(key);
    }
    if (!is_hardware(offered_.get())) return true;
    hardware_file_ = candidate.key_file;
    return false;
}

int SshAuthentication::ask() {
    const Candidate& candidate = candidates_[at_];
    if (candidate.key_file.empty()) return ssh_userauth_agent(session_, nullptr);
    if (!taken_) {
        const int status = ssh_userauth_try_publickey(session_, nullptr, offered_.get());
        if (status != SSH_AUTH_SUCCESS) return status;
        taken_ = true;
        if (private_ == nullptr) private_ = read_private(candidate.key_file);
        if (private_ == nullptr) return SSH_AUTH_DENIED;
        if (!candidate.certificate_file.empty() &&
            ssh_pki_copy_cert_to_privkey(offered_.get(), private_.get()) != SSH_OK) {
            return SSH_AUTH_DENIED;
        }
    }
    return ssh_userauth_publickey(session_, nullptr, private_.get());
}

SshAuthentication::Result SshAuthentication::step() {
    for (; at_ < candidates_.size(); next()) {
        if (!loaded_ && !load()) continue;
        loaded_ = true;
        const int status = ask();
        if (status == SSH_AUTH_AGAIN) return Result::kAgain;
        if (status == SSH_AUTH_SUCCESS) return Result::kAccepted;
        if (status == SSH_AUTH_PARTIAL) {
            partial_ = true;
            return Result::kRefused;
        }
        if (status == SSH_AUTH_ERROR) {
            if (ssh_is_connected(session_) == 0) {
                error_ = printable(ssh_get_error(session_));
                return Result::kRefused;
            }
            agent_refused_ = agent_refused_ || candidates_[at_].key_file.empty();
        }
    }
    return Result::kRefused;
}

std::string SshAuthentication::cause() const {
    if (partial_) {
        return "Permission denied: it takes the key but wants another proof besides, which only "
               "the ssh program can give; give --launcher openssh";
    }
    if (!error_.empty()) return "authentication failed: " + error_;
    const int methods = ssh_userauth_list(session_, nullptr);
    std::string text = "Permission denied: it accepts none of your keys";
    if (methods != 0 && (methods & SSH_AUTH_METHOD_PUBLICKEY) == 0) {
        text =
            "Permission denied: it takes no keys, only a password or the like, which is never "
            "asked for; let its sshd accept public keys";
    } else if (!locked_file_.empty()) {
        text += fmt::format(" (one needs a passphrase: load it with ssh-add {})",
                            printable(locked_file_));
    } else if (!hardware_file_.empty()) {
        text += fmt::format(
            " ({} is on a FIDO device: load it with ssh-add, or give --launcher "
            "openssh)",
            printable(hardware_file_));
    } else if (agent_refused_) {
        text += " (the ssh-agent refuses to sign)";
    } else {
        text += fmt::format("; put one there with `ssh-copy-id {}`", target_.name);
    }
    if (!target_.unused_credentials.empty()) {
        text +=
            fmt::format("; {} is only done with --launcher openssh", target_.unused_credentials);
    }
    return text;
}

}  // namespace dslaunch::launch
