#include "launch/network/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/fd.h"
#include "base/text.h"
#include "launch/process/text_or_empty.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kSpeedBytesMax = 4096;

std::string digits(const sockaddr* address, socklen_t length) {
    char text[NI_MAXHOST] = {};
    if (::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
        return {};
    }
    return std::string(text).substr(0, std::string_view(text).find('%'));
}

// -1: virtual links have none, and a link that is down does not say.
int64_t speed_of(const std::string& interface) {
    const std::string text =
        text_or_empty("/sys/class/net/" + interface + "/speed", kSpeedBytesMax);
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
        address.address =
            digits(entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
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
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        // Only an address of an interface can be bound.
        const UniqueFd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (socket.valid() && ::bind(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0)
            return true;
    }
    return false;
}

std::string local_address(int socket, int64_t* port) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::getsockname(socket, generic, &length) != 0) return {};
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return {};
    if (port != nullptr) {
        *port = ntohs(address.ss_family == AF_INET6
                          ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                          : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
    }
    const std::string text = digits(generic, length);
    return text == "0.0.0.0" || text == "::" ? "" : text;
}

}  // namespace dslaunch::launch
