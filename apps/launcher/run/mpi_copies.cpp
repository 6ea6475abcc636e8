#include "launcher/run/mpi_copies.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/machine/machine_name.h"
#include "launch/network/interfaces.h"
#include "launch/plan/join_token.h"
#include "launch/process/spawn.h"
#include "launch/transport/join/join_endpoint.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kCopyKey = "dslaunch.copy";
constexpr const char* kPlaceKey = "dslaunch.place";

std::string host_name() {
    std::string name = launch::machine_name();
    return launch::is_host_name(name) ? name : "host";
}

// Returns the addresses of the network interfaces that are up, without loopback and link-local
// addresses.
std::vector<std::string> own_addresses() {
    std::vector<std::string> found;
    for (const launch::InterfaceAddress& entry : launch::list_interfaces()) {
        if (entry.up && !entry.loopback && !entry.address.starts_with("fe80:"))
            found.push_back(entry.address);
    }
    return found;
}

// Returns a free port of ADDRESS. SOCKET is bound to it, but does not listen, so that no other
// program gets the port while SOCKET lives.
int hold_port(const std::string& address, UniqueFd& socket) {
    const auto list = launch::look_up(address, 0, AI_NUMERICHOST);
    if (!list)
        fail(ExitCode::kSetup, "`{}` is not an address that this machine can listen on",
             printable(address));
    socket = UniqueFd(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0)
        fail(ExitCode::kSetup, "found no free port at {}: {}", address, errno_text(errno));
    int64_t port = 0;
    static_cast<void>(launch::local_address(socket.get(), &port));
    return static_cast<int>(port);
}

launch::PmixSession open_session(const Machine& machine) {
    try {
        if (!machine.variable("PMIX_NAMESPACE")) {
            fail(ExitCode::kSetup, "found no PMIx server (PMIX_NAMESPACE is not set)");
        }
        return launch::PmixSession();
    } catch (const Error& error) {
        fail(ExitCode::kSetup,
             "mpirun has started several copies of dslaunch, which can find each other only "
             "through PMIx, but PMIx does not work: {}; start a single copy with --hostfile (and "
             "--launcher openmpi to use mpirun)",
             error.what());
    }
}

}  // namespace

bool MpiCopies::is_one(const RunOptions& options, const Machine& machine) {
    return machine.number("OMPI_COMM_WORLD_SIZE") > 1 && options.hostfile.empty() &&
           options.launcher.empty() && !options.no_ssh && !options.standalone && !options.dry_run;
}

void MpiCopies::check(const RunOptions& options) {
    for (const auto& [given, name] : {std::pair{!options.listen.empty(), "--listen"},
                                      std::pair{!options.token_file.empty(), "--token_file"}}) {
        if (given) {
            fail(ExitCode::kUsage,
                 "{} is only for --launcher join: the copies that mpirun starts find each other by "
                 "themselves; leave it out",
                 name);
        }
    }
}

MpiCopies::MpiCopies(const Machine& machine) : session_(open_session(machine)) {
    const auto copies = static_cast<uint32_t>(machine.number("OMPI_COMM_WORLD_SIZE"));
    const int64_t local_rank = machine.number("OMPI_COMM_WORLD_LOCAL_RANK");
    session_.put(kCopyKey, fmt::format("{} {} {} {}", local_rank,
                                       machine.number("OMPI_COMM_WORLD_LOCAL_SIZE"), host_name(),
                                       join(own_addresses(), ",")));
    session_.meet();
    if (launches()) choose_place(copies);
    session_.meet();
    if (!launches()) {
        const std::vector<std::string> words = split(session_.get(0, kPlaceKey), ' ');
        if (words.size() < 3)
            fail(ExitCode::kInternal, "copy 0 did not report where it waits for the others");
        joining_.listen = words[0];
        token_ = words[1];
        const auto first =
            std::find(words.begin() + 2, words.end(), std::to_string(session_.rank()));
        if (first != words.end()) node_ = static_cast<uint32_t>(first - words.begin() - 2);
    }
    forget_mpi();
}

void MpiCopies::choose_place(uint32_t copies) {
    std::string firsts;  // the first copy on each host, in order
    std::vector<launch::HostAddress> others;
    for (uint32_t rank = 0; rank < copies; ++rank) {
        const std::vector<std::string> words = split(session_.get(rank, kCopyKey), ' ');
        if (words.size() != 4)
            fail(ExitCode::kInternal, "mpirun's copy {} of this program did not report its host",
                 rank);
        if (words[0] != "0") continue;
        launch::Host host;
        host.name = words[2];
        const auto same = std::count_if(
            joining_.hosts.begin(), joining_.hosts.end(), [&](const launch::Host& known) {
                return known.name == words[2] || known.name.starts_with(words[2] + "-copy");
            });
        if (same > 0) host.name += fmt::format("-copy{}", rank);
        host.slots = static_cast<int>(parse_int(words[1]).value_or(1));
        joining_.hosts.push_back(host);
        firsts += fmt::format(" {}", rank);
        if (rank == 0 || words[3].empty()) continue;
        for (const std::string& address : split(words[3], ',')) {
            others.push_back({host.name, {}, 0, address});
        }
    }
    const std::string address = others.empty() ? "127.0.0.1" : launch::address_facing(others);
    launch::JoinEndpoint place;
    place.host = address;
    place.port = hold_port(address, held_port_);
    joining_.listen = place.text();
    token_ = launch::make_token();
    session_.put(kPlaceKey, joining_.listen + " " + token_ + firsts);
}

// Removes mpirun's variables from the environment. The workers are not processes of mpirun, but
// would take the rank numbers in these variables for their own.
void MpiCopies::forget_mpi() const {
    for (const auto& [name, value] : launch::own_environment()) {
        for (const char* prefix : {"OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_"}) {
            if (name.starts_with(prefix)) ::unsetenv(name.c_str());
        }
    }
}

int MpiCopies::serve() {
    int code = 0;
    if (node_) {
        launch::SpawnRequest agent;
        agent.command = {"/proc/self/exe",    "agent",  "--join",
                         joining_.listen,     "--node", std::to_string(*node_),
                         "--connect-timeout", "60"};
        launch::set_variable(agent.environment, launch::kTokenVariable, token_);
        agent.stdout_fd = STDOUT_FILENO;
        agent.stderr_fd = STDERR_FILENO;
        agent.die_with_parent = true;
        const launch::SpawnResult child = launch::spawn(agent);
        if (child.pid < 0) fail(ExitCode::kSetup, "cannot start the agent: {}", child.error);
        code = launch::wait_for_end(child.pid);
    }
    session_.meet();
    session_.finish();
    return code;
}

void MpiCopies::finish() {
    session_.meet();
    session_.finish();
}

}  // namespace dslaunch::launcher
