#include "launch/transport/transport.h"

#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {

std::string launcher_path() {
    char buffer[PATH_MAX];
    const ssize_t length = ::readlink("/proc/self/exe", buffer, sizeof buffer);
    if (length <= 0) fail(ExitCode::kSetup, "/proc/self/exe: {}", errno_text(errno));
    std::string path(buffer, static_cast<size_t>(length));
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '/' || c == '_' || c == '+' || c == '-';
    };
    for (const char c : path) {
        if (!is_plain(c)) {
            fail(ExitCode::kUsage,
                 "dslaunch is at `{}`, but over ssh its path may contain only A-Z a-z 0-9 . / _ + "
                 "-; move it",
                 printable(path));
        }
    }
    return path;
}

std::string remote_command(const std::string& path, const HostAddress& host) {
    if (!host.command.empty()) return host.command;
    const bool is_relay = host.program == RemoteProgram::kRelay;
    return "exec " + path + (is_relay ? " relay" : " agent") + " --stdio";
}

std::vector<HostAddress> addresses_of(const std::vector<PlannedNode>& nodes) {
    std::vector<HostAddress> hosts;
    for (const PlannedNode& node : nodes) {
        hosts.push_back({node.name, node.user, node.port, node.address});
    }
    return hosts;
}

size_t Transport::add(const HostAddress& host) {
    DSL_CHECK(false, "this transport cannot add host {}", host.name);
}

void Transport::hold(size_t host, bool held) {
    DSL_CHECK(false, "this transport cannot pause reading from host {} (pause: {})", host, held);
}

std::unique_ptr<Transport> make_transport(const JobSpec& spec) {
    switch (spec.transport) {
        case TransportKind::kLocal:
            return make_local_transport(spec.target_kind != TargetKind::kModel);
        case TransportKind::kSsh:
            return make_ssh_transport(spec.ssh_config_path);
        case TransportKind::kOpenSsh:
            return make_openssh_transport(spec.ssh_config_path, spec.launcher_args);
        case TransportKind::kJoin:
            return make_joining_transport(spec);
        case TransportKind::kSlurm:
            return make_slurm_transport(spec);
        case TransportKind::kPdsh:
            return make_pdsh_transport(spec);
        case TransportKind::kOpenMpi:
            return make_openmpi_transport(spec);
    }
    DSL_CHECK(false, "an unknown transport");
}

}  // namespace dslaunch::launch
