#include "launch/push/bootstrap.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/files/ustar.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kHostsAtOnce = 8;
constexpr std::chrono::minutes kHostMax{5};
constexpr milliseconds kTick{500};
constexpr size_t kSentFileBytesMax = size_t{1} << 30;
constexpr size_t kKeptLines = 5;

struct HostSetUp {
    bool ended = false;
    std::string error;
    std::vector<std::string> lines;
};

void take(const TransportEvent& event, HostSetUp& host) {
    if (event.kind == TransportEvent::Kind::kDiagnostic) {
        if (host.lines.size() < kKeptLines) host.lines.push_back(printable(event.text));
        return;
    }
    if (event.kind != TransportEvent::Kind::kEnded) return;
    host.ended = true;
    if (event.exit_status == 0) return;
    const std::string said = host.lines.empty() ? printable(event.text) : join(host.lines, " / ");
    host.error =
        event.exit_status < 0
            ? said
            : fmt::format("dslaunch could not be put there (exit {}): {}", event.exit_status, said);
}

bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
}

// Serves HOSTS at once; what they hold is released before the next ones.
std::vector<std::string> serve(const std::vector<HostAddress>& hosts, std::string_view archive,
                               Transport& transport, int signal_fd) {
    std::vector<HostSetUp> progress(hosts.size());
    transport.start(hosts);
    for (size_t i = 0; i < hosts.size(); ++i) {
        transport.send(i, archive);
        transport.close_input(i);
    }
    const auto limit = steady_clock::now() + kHostMax;
    const auto all_ended = [&] {
        return std::all_of(progress.begin(), progress.end(), [](const auto& p) { return p.ended; });
    };
    while (!all_ended() && steady_clock::now() < limit) {
        for (const TransportEvent& event : transport.wait(kTick, signal_fd)) {
            take(event, progress[event.host]);
        }
        if (is_readable(signal_fd)) fail(ExitCode::kInterrupted, "interrupted");
    }
    std::vector<std::string> errors;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (!progress[i].ended) {
            transport.abandon(i);
            progress[i].error =
                fmt::format("dslaunch did not get there within {} minutes", kHostMax.count());
        }
        errors.push_back(progress[i].error);
    }
    return errors;
}

}  // namespace

std::string bootstrap_command(const InstallationPaths& paths, const std::string& id) {
    const std::string own = launcher_path();  // checked: nothing in it means anything to a shell
    const std::string temporary = paths.prefix + "/.dslaunch-" + id;
    // The libraries go first: the program must never be there without them.
    return fmt::format(
        "exec sh -c 'umask 022; mkdir -p {0} {1} {2} && cd {0} && tar -xof - && mv -f l/* {2}/ && "
        "mv -f p/dslaunch {3}; s=$?; cd /; rm -rf {0}; exit $s'",
        temporary, paths.programs, paths.libraries, own);
}

std::string bootstrap_archive(const InstallationPaths& paths, const std::vector<PushFile>& files) {
    std::string archive;
    for (const PushFile& file : files) {
        const std::string content = read_file(file.local_path, kSentFileBytesMax);
        UstarEntry entry;
        const bool is_library = file.target_path.starts_with(paths.libraries + "/");
        entry.name = is_library ? "l/" + file.target_path.substr(paths.libraries.size() + 1)
                                : std::string("p/dslaunch");
        entry.bytes = static_cast<int64_t>(content.size());
        entry.mode = is_library ? 0644 : 0755;
        archive += ustar_header(entry) + content;
        archive.append(ustar_padding(entry.bytes), '\0');
    }
    return archive + ustar_end();
}

std::vector<std::string> bootstrap_hosts(
    const std::vector<HostAddress>& hosts, const std::vector<PushFile>& files,
    const std::function<std::unique_ptr<Transport>()>& make_transport, int signal_fd) {
    const InstallationPaths paths = installation_paths();
    const std::string archive = bootstrap_archive(paths, files);
    std::random_device device;
    const std::string command =
        bootstrap_command(paths, fmt::format("{:08x}{:08x}", device(), device()));
    std::vector<std::string> errors;
    for (size_t begin = 0; begin < hosts.size(); begin += kHostsAtOnce) {
        std::vector<HostAddress> some(hosts.begin() + static_cast<std::ptrdiff_t>(begin),
                                      hosts.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                          begin + kHostsAtOnce, hosts.size())));
        for (HostAddress& host : some) host.command = command;
        const auto transport = make_transport();
        for (std::string& error : serve(some, archive, *transport, signal_fd)) {
            errors.push_back(std::move(error));
        }
    }
    return errors;
}

}  // namespace dslaunch::launch
