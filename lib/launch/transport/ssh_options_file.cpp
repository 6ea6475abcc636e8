#include "launch/transport/ssh_options_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

// Returns true for /dev/null: everyone may write to it, but no one can leave anything in it.
bool is_null_device(const struct stat& status) {
    return S_ISCHR(status.st_mode) && status.st_rdev == ::makedev(1, 3);
}

std::string home() {
    const passwd* entry = ::getpwuid(::getuid());
    return entry == nullptr ? "/" : entry->pw_dir;
}

}  // namespace

UniqueFd open_ssh_config(const std::string& path, SshConfigOrigin origin) {
    const bool given = origin == SshConfigOrigin::kGiven;
    // If the file is a FIFO without a writer, a blocking open() would wait.
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    const int error = !file.valid() || ::fstat(file.get(), &status) != 0 ? errno : 0;
    const bool is_folder = error == 0 && S_ISDIR(status.st_mode);
    if (error != 0 || is_folder) {
        if (!given) return {};
        fail(ExitCode::kUsage, "the ssh configuration {} cannot be read: {}", printable(path),
             is_folder ? "it is a folder" : errno_text(error));
    }
    if (origin == SshConfigOrigin::kSystem || is_null_device(status)) return file;
    const bool is_own = status.st_uid == 0 || status.st_uid == ::geteuid();
    const mode_t others = given ? S_IWOTH : S_IWGRP | S_IWOTH;
    if (S_ISREG(status.st_mode) && is_own && (status.st_mode & others) == 0) return file;
    fail(ExitCode::kUsage,
         "the ssh configuration {} can be written by other users (owner {}, mode {:03o}), so it is "
         "not used; run chmod go-w on it",
         printable(path), status.st_uid, status.st_mode & 0777);
}

void require_own_ssh_config(const std::string& path) {
    if (path.empty() || path == "none") return;
    static_cast<void>(open_ssh_config(path, SshConfigOrigin::kGiven));
}

std::string ssh_options_text(const std::vector<HostAddress>& hosts,
                             const std::string& ssh_config_path,
                             const SshOptionsFile::Forward& forward) {
    std::string text;
    for (size_t i = 0; i < hosts.size(); ++i) {
        const HostAddress& host = hosts[i];
        std::string lines;
        if (!host.user.empty()) lines += fmt::format("    User {}\n", host.user);
        if (host.port != 0) lines += fmt::format("    Port {}\n", host.port);
        if (!host.address.empty()) {
            lines += fmt::format("    HostName {}\n    HostKeyAlias {}\n", host.address, host.name);
        }
        if (!forward.there.empty()) {
            lines += fmt::format("    RemoteForward {}-{} {}\n", forward.there, i, forward.here);
        }
        if (!lines.empty()) text += fmt::format("Host {}\n{}", host.name, lines);
    }
    text += "Match all\n";
    for (const char* option :
         {"BatchMode yes", "StrictHostKeyChecking yes", "ConnectTimeout 10",
          "ServerAliveInterval 5", "ServerAliveCountMax 3", "ForwardAgent no", "ForwardX11 no",
          "ExitOnForwardFailure yes", "ControlMaster no", "ControlPath none", "RemoteCommand none",
          "RequestTTY no", "PermitLocalCommand no", "LogLevel ERROR"}) {
        text += fmt::format("    {}\n", option);
    }
    if (!ssh_config_path.empty()) return text + fmt::format("Include \"{}\"\n", ssh_config_path);
    return text + fmt::format("Include \"{}/.ssh/config\"\nInclude /etc/ssh/ssh_config\n", home());
}

SshOptionsFile::SshOptionsFile(const std::vector<HostAddress>& hosts,
                               const std::string& ssh_config_path, const Forward& forward)
    : file_(::memfd_create("dslaunch-ssh-options", MFD_CLOEXEC)) {
    require_own_ssh_config(ssh_config_path);
    const std::string text = ssh_options_text(hosts, ssh_config_path, forward);
    if (!file_.valid() || write_full(file_.get(), text) != 0) {
        fail(ExitCode::kSetup, "cannot write the ssh options into memory: {}", errno_text(errno));
    }
}

std::string SshOptionsFile::path() const {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

}  // namespace dslaunch::launch
