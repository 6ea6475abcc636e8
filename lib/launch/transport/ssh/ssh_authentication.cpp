#include "launch/transport/ssh/ssh_authentication.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

// Refuses every question: otherwise libssh would let OpenSSL ask on the terminal for an old key's
// passphrase.
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
    // With IdentitiesOnly, the ssh-agent is tried last. It may have the key of an identity file
    // that is locked by a passphrase.
    if (target.use_agent && target.identities_only) candidates_.emplace_back();
}

void SshAuthentication::next() {
    ++at_;
    offered_.reset();
    private_.reset();
    is_taken_ = false;
    is_loaded_ = false;
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
        // With IdentitiesOnly, the keys of the ssh-agent are offered only if one of them may belong
        // to an identity file that is locked or on hardware.
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
    if (!is_taken_) {
        const int status = ssh_userauth_try_publickey(session_, nullptr, offered_.get());
        if (status != SSH_AUTH_SUCCESS) return status;
        is_taken_ = true;
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
        if (!is_loaded_ && !load()) continue;
        is_loaded_ = true;
        const int status = ask();
        if (status == SSH_AUTH_AGAIN) return Result::kAgain;
        if (status == SSH_AUTH_SUCCESS) return Result::kAccepted;
        if (status == SSH_AUTH_PARTIAL) {
            is_partial_ = true;
            return Result::kRefused;
        }
        if (status == SSH_AUTH_ERROR) {
            if (ssh_is_connected(session_) == 0) {
                error_ = printable(ssh_get_error(session_));
                return Result::kRefused;
            }
            has_agent_refused_ = has_agent_refused_ || candidates_[at_].key_file.empty();
        }
    }
    return Result::kRefused;
}

std::string SshAuthentication::cause() const {
    if (is_partial_) {
        return "Permission denied: it accepts the key but also requires a second authentication, "
               "which only the ssh program supports; give --launcher openssh";
    }
    if (!error_.empty()) return "authentication failed: " + error_;
    const int methods = ssh_userauth_list(session_, nullptr);
    std::string text = "Permission denied: it accepts none of your keys";
    if (methods != 0 && (methods & SSH_AUTH_METHOD_PUBLICKEY) == 0) {
        text =
            "Permission denied: it accepts no keys, only a password or similar, which dslaunch "
            "never asks for; let its sshd accept public keys";
    } else if (!locked_file_.empty()) {
        text += fmt::format(" (one key needs a passphrase: load it with ssh-add {})",
                            printable(locked_file_));
    } else if (!hardware_file_.empty()) {
        text += fmt::format(
            " (the key {} is on a FIDO device: load it with ssh-add, or give --launcher openssh)",
            printable(hardware_file_));
    } else if (has_agent_refused_) {
        text += " (the ssh-agent refuses to sign)";
    } else {
        text += fmt::format("; install a key there with `ssh-copy-id {}`", target_.name);
    }
    if (!target_.unused_credentials.empty()) {
        text += fmt::format("; {} works only with --launcher openssh", target_.unused_credentials);
    }
    return text;
}

}  // namespace dslaunch::launch
