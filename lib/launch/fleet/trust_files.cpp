#include "launch/fleet/trust_files.h"

#include <fcntl.h>
#include <libssh/libssh.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/fd.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kKeyFileBytesMax = 64U << 10;
constexpr size_t kKnownHostsBytesMax = 64U << 20;
constexpr mode_t kPrivate = 0077;
constexpr std::chrono::seconds kKeygenMax{60};

std::string home() {
    const char* folder = std::getenv("HOME");
    if (folder == nullptr || folder[0] != '/') {
        fail(ExitCode::kSetup,
             "HOME is not set to an absolute path, so there is no ~/.ssh for a key");
    }
    return folder;
}

void make_folder_of(const std::string& file) {
    const std::string folder = folder_of(file);
    if (const int status = make_folders(folder, 0700); status != 0)
        fail(ExitCode::kDisk, "{}: {}", folder, errno_text(status));
}

std::string read_public_key(const std::string& path) {
    const std::string line(trim(read_file(path, kKeyFileBytesMax)));
    if (!is_public_key_line(line)) {
        fail(ExitCode::kSetup, "{} must contain exactly one public key, on one line", path);
    }
    return line;
}

// Throws Error{kSetup} if there is a private key at PATH, since a new key would overwrite it.
void require_no_private_key(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return;
    fail(ExitCode::kSetup,
         "{0} exists, but {0}.pub does not; create it with: ssh-keygen -y -f {0} > {0}.pub", path);
}

std::string make_key(const std::string& path) {
    make_folder_of(path);
    ssh_key raw = nullptr;
    if (ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &raw) != SSH_OK) {
        fail(ExitCode::kSetup, "libssh cannot make an ed25519 key");
    }
    const std::unique_ptr<ssh_key_struct, void (*)(ssh_key)> key(raw, ssh_key_free);
    const mode_t before = ::umask(kPrivate);
    const int status =
        ssh_pki_export_privkey_file(key.get(), nullptr, nullptr, nullptr, path.c_str());
    ::umask(before);
    char* text = nullptr;
    if (status != SSH_OK || ssh_pki_export_pubkey_base64(key.get(), &text) != SSH_OK) {
        fail(ExitCode::kSetup, "cannot write the new key {}", path);
    }
    const std::string line = std::string("ssh-ed25519 ") + text + " dslaunch";
    ssh_string_free_char(text);
    write_file_atomically(path + ".pub", line + "\n");
    return line;
}

}  // namespace

bool is_public_key_line(const std::string& line) {
    const std::vector<std::string> words = split(line, ' ');
    if (words.size() < 2 || line.size() > kKeyFileBytesMax) return false;
    const std::string& type = words[0];
    if (!type.starts_with("ssh-") && !type.starts_with("ecdsa-sha2-") && !type.starts_with("sk-")) {
        return false;
    }
    return std::all_of(line.begin(), line.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               std::string_view(" +/=.@_:-").find(c) != std::string_view::npos;
    });
}

std::string find_or_make_public_key(const std::string& identity, std::string& made) {
    if (!identity.empty() && ::access((identity + ".pub").c_str(), R_OK) == 0) {
        return read_public_key(identity + ".pub");
    }
    if (!identity.empty()) require_no_private_key(identity);
    const std::string standard = home() + "/.ssh/id_";
    const bool is_standard = identity.empty() || identity.starts_with(standard);
    for (const char* type : {"ed25519", "ecdsa", "rsa"}) {
        const std::string path = standard + type + ".pub";
        if (is_standard && ::access(path.c_str(), R_OK) == 0) return read_public_key(path);
    }
    made = is_standard ? standard + "ed25519" : identity;
    require_no_private_key(made);
    return make_key(made);
}

void add_known_hosts(const std::string& file, const std::string& lines) {
    make_folder_of(file);
    const UniqueFd out(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (!out.valid()) fail(ExitCode::kDisk, "{}: {}", file, errno_text(errno));
    // If the file's last line has no newline, the first added line would become a part of it.
    char last = '\n';
    const off_t length = ::lseek(out.get(), 0, SEEK_END);
    if (length > 0) static_cast<void>(::pread(out.get(), &last, 1, length - 1));
    const int status = write_full(out.get(), (last == '\n' ? "" : "\n") + lines);
    if (status != 0 || ::fsync(out.get()) != 0) {
        fail(ExitCode::kDisk, "{}: {}", file, errno_text(status != 0 ? -status : errno));
    }
}

void forget_known_host(const std::string& file, const std::string& name) {
    static_cast<void>(read_file(file, kKnownHostsBytesMax));
    SpawnRequest request;
    request.command = {"ssh-keygen", "-q", "-R", name, "-f", file};
    const UniqueFd nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    request.stdout_fd = nowhere.get();
    request.stderr_fd = nowhere.get();
    const SpawnResult result = spawn(request);
    if (result.pid < 0) fail(ExitCode::kSetup, "ssh-keygen: {}", result.error);
    if (wait_or_kill(result.pid, kKeygenMax) != 0) {
        fail(ExitCode::kSetup, "`ssh-keygen -R {} -f {}` failed: remove the old key by hand", name,
             file);
    }
}

}  // namespace dslaunch::launch
