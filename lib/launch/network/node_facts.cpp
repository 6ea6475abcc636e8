#include "launch/network/node_facts.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "launch/machine/control_group.h"
#include "launch/machine/gpu_count.h"
#include "launch/machine/machine_topology.h"
#include "launch/machine/port_owner.h"
#include "launch/network/interfaces.h"

namespace dslaunch::launch {
namespace {

constexpr int kBacklog = 4096;

// sshd sets SSH_CONNECTION to "client port server port".
std::string arrival_address() {
    const char* connection = std::getenv("SSH_CONNECTION");
    if (connection == nullptr) return {};
    const auto words = split(connection, ' ');
    return words.size() == 4 ? words[2] : std::string();
}

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1" || address == "localhost";
}

// The first IPv4 address of this machine that others can reach.
std::string outward_address() {
    for (const InterfaceAddress& entry : list_interfaces()) {
        const bool is_ipv4 = entry.address.find(':') == std::string::npos;
        if (is_ipv4 && !is_loopback(entry.address)) return entry.address;
    }
    return {};
}

std::string choose_address(const PrepareRequest& request, const std::string& arrival) {
    if (!request.address.empty()) return request.address;
    if (request.loopback_only) return "127.0.0.1";
    if (!arrival.empty() && !is_loopback(arrival)) return arrival;
    const std::string outward = outward_address();
    if (outward.empty()) {
        fail(ExitCode::kSetup,
             "this node has no address that other nodes reach; name one with --master_addr");
    }
    return outward;
}

}  // namespace

AgentHello look_at_node() {
    AgentHello hello;
    utsname names{};
    ::uname(&names);
    hello.version = DSL_VERSION;
    hello.host_name = names.nodename;
    hello.kernel = names.release;
    hello.pid = ::getpid();
    hello.cores = static_cast<int64_t>(allowed_processors().size());
    if (hello.cores == 0) hello.cores = ::sysconf(_SC_NPROCESSORS_ONLN);
    if (const int granted = processors_granted(""); granted > 0) {
        hello.cores = std::min<int64_t>(hello.cores, granted);
    }
    hello.gpus = count_gpus();
    hello.arrival_address = arrival_address();
    return hello;
}

Rendezvous open_rendezvous(const PrepareRequest& request, const std::string& arrival) {
    const std::string address = choose_address(request, arrival);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* list = nullptr;
    const std::string port = std::to_string(request.port);
    if (const int status = ::getaddrinfo(address.c_str(), port.c_str(), &hints, &list);
        status != 0) {
        fail(ExitCode::kSetup, "the rendezvous address `{}` does not resolve: {}",
             printable(address), ::gai_strerror(status));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!socket.valid() || ::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
        ::listen(socket.get(), kBacklog) != 0) {
        const int error_number = errno;
        const std::string holder = error_number == EADDRINUSE
                                       ? describe_port_owner(static_cast<int>(request.port))
                                       : std::string();
        fail(ExitCode::kSetup,
             "cannot listen on {}:{} where the ranks meet: {}{}; choose with --master_addr and "
             "--master_port, or leave them out",
             printable(address), request.port, errno_text(error_number),
             holder.empty() ? "" : ", by " + holder);
    }
    int64_t chosen = 0;
    static_cast<void>(local_address(socket.get(), &chosen));
    return {std::move(socket), {address, chosen}};
}

}  // namespace dslaunch::launch
