#include "launch/transport/ssh_options_file.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "launch/transport/ssh_config_file.h"

namespace dslaunch::launch {
namespace {

std::string home() {
    const passwd* entry = ::getpwuid(::getuid());
    return entry == nullptr ? "/" : entry->pw_dir;
}

}  // namespace

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
