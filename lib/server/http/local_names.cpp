#include "server/http/local_names.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/text.h"
#include "server/http/request_head.h"

namespace dslaunch::server {

namespace {

constexpr uint32_t kLoopbackNet = 127;

// Returns HOST without its port; nothing if the text after the name is not a port.
std::optional<std::string_view> name_of(std::string_view host) {
    const size_t name_end = host.starts_with('[') ? host.find(']') : host.find(':');
    if (host.starts_with('[') && name_end == host.npos) return std::nullopt;
    const std::string_view name =
        host.starts_with('[') ? host.substr(0, name_end + 1) : host.substr(0, name_end);
    const std::string_view rest = host.substr(name.size());
    constexpr size_t kPortCharsMax = 6;
    const bool is_port = rest.starts_with(':') && rest.size() <= kPortCharsMax &&
                         std::ranges::all_of(rest.substr(1), is_digit);
    if (!rest.empty() && !is_port) return std::nullopt;
    return name;
}

// Returns true for an IPv4 address in 127.0.0.0/8, written as four decimal numbers up to 255; other
// notations are not accepted.
bool is_loopback_v4(std::string_view name) {
    int parts = 0;
    for (;; ++parts) {
        const std::string_view part = name.substr(0, name.find('.'));
        const auto number = part.size() <= 3 && std::ranges::all_of(part, is_digit)
                                ? parse_int(part)
                                : std::nullopt;
        if (!number || *number > 255 || (parts == 0 && *number != kLoopbackNet)) return false;
        if (part.size() == name.size()) break;
        name.remove_prefix(part.size() + 1);
    }
    return parts == 3;
}

bool is_loopback(const sockaddr& address) {
    if (address.sa_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        return ntohl(v4.sin_addr.s_addr) >> 24 == kLoopbackNet;
    }
    if (address.sa_family != AF_INET6) return false;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

}  // namespace

bool is_local_host(std::string_view host) {
    const auto name = name_of(host);
    return name &&
           (equal_ignoring_case(*name, "localhost") || *name == "[::1]" || is_loopback_v4(*name));
}

bool is_local_origin(std::string_view origin) {
    constexpr std::array<std::string_view, 2> kSchemes = {"http://", "https://"};
    return std::ranges::any_of(kSchemes, [&](std::string_view scheme) {
        return equal_ignoring_case(origin.substr(0, scheme.size()), scheme) &&
               is_local_host(origin.substr(scheme.size()));
    });
}

bool is_json_type(std::string_view type) {
    return equal_ignoring_case(trim(type.substr(0, type.find(';'))), "application/json");
}

bool listens_publicly(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    // bind() will report an unknown name.
    if (::getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found) != 0)
        return false;
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
        if (!is_loopback(*at->ai_addr)) return true;
    return false;
}

}  // namespace dslaunch::server
