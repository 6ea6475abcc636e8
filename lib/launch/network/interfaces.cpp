#include "launch/network/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "launch/machine/port_watch.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {
namespace {

constexpr int kBacklog = 4096;

// Returns the speed; -1 for a virtual link, which has no speed, and for a link that is down, which
// does not report one.
int64_t speed_of(const std::string& interface) {
    const std::string text = text_or_empty("/sys/class/net/" + interface + "/speed");
    return parse_int(trim(text)).value_or(-1);
}

}  // namespace

std::vector<InterfaceAddress> list_interfaces() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
    std::vector<InterfaceAddress> found;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr) continue;
        const int family = entry->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        InterfaceAddress address;
        address.interface = entry->ifa_name;
        address.address = address_text(*entry->ifa_addr);
        address.up = (entry->ifa_flags & IFF_UP) != 0;
        address.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
        address.for_guests = is_for_guests(address.interface);
        if (!address.loopback) address.speed_mbit = speed_of(address.interface);
        if (!address.address.empty()) found.push_back(std::move(address));
    }
    return found;
}

std::string interface_of(const std::vector<InterfaceAddress>& addresses,
                         const std::string& address) {
    for (const InterfaceAddress& entry : addresses) {
        if (entry.address == address) return entry.interface;
    }
    return {};
}

bool is_for_guests(const std::string& interface) {
    static constexpr std::array<std::string_view, 16> kPrefixes = {
        "docker", "br-",   "virbr", "veth",   "vnet",  "cni",   "flannel",   "cali",
        "cilium", "lxcbr", "lxdbr", "podman", "vmnet", "kube-", "nodelocal", "weave"};
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

bool is_own_address(const std::string& host) {
    const std::shared_ptr<addrinfo> list = look_up(host, 0);
    for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
        // bind() succeeds only for an address of one of this machine's interfaces.
        const UniqueFd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (socket.valid() && ::bind(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0)
            return true;
    }
    return false;
}

std::shared_ptr<addrinfo> look_up(const std::string& host, int64_t port, int flags,
                                  std::string* error, int family) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (status == 0) return {list, ::freeaddrinfo};
    if (error != nullptr) *error = ::gai_strerror(status);
    return nullptr;
}

UniqueFd listen_at(const addrinfo& place, int64_t port, std::string& error) {
    UniqueFd socket(::socket(place.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket.valid() && ::bind(socket.get(), place.ai_addr, place.ai_addrlen) == 0 &&
        ::listen(socket.get(), kBacklog) == 0)
        return socket;
    const int error_number = errno;
    error = errno_text(error_number);
    const std::string holder =
        error_number == EADDRINUSE ? describe_port_owner(static_cast<int>(port)) : std::string();
    if (!holder.empty()) error += ", by " + holder;
    return {};
}

std::string address_text(const sockaddr& address, int64_t* port) {
    constexpr std::string_view kMapped = "::ffff:";
    const bool is_ipv4 = address.sa_family == AF_INET;
    if (!is_ipv4 && address.sa_family != AF_INET6) return {};
    char host[NI_MAXHOST] = {}, service[NI_MAXSERV] = {};
    if (::getnameinfo(&address, is_ipv4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), host,
                      sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return {};
    if (port != nullptr) *port = parse_int(service).value_or(0);
    std::string text(host);
    text.resize(std::min(text.find('%'), text.size()));
    const bool is_mapped = text.starts_with(kMapped) && text.find('.') != std::string::npos;
    return is_mapped ? text.substr(kMapped.size()) : text;
}

std::string local_address(int socket, int64_t* port) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::getsockname(socket, generic, &length) != 0) return {};
    const std::string text = address_text(*generic, port);
    return text == "0.0.0.0" || text == "::" ? "" : text;
}

}  // namespace dslaunch::launch
