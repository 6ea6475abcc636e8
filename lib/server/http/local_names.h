// Which names a client may have called a server by that wants no key: a page from elsewhere, read
// by a browser of this machine, must not reach it, by a name that has come to mean this machine
// either (DNS rebinding). Pure but for listens_publicly().
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::server {

// HOST as the field Host has it, a port behind it or not, is this machine's for itself: localhost,
// 127.0.0.0/8 or [::1]. Another name may have been given this address by anyone.
[[nodiscard]] bool is_local_host(std::string_view host);
// ORIGIN is that of a page of this machine: http:// or https:// before such a host.
[[nodiscard]] bool is_local_origin(std::string_view origin);
// TYPE, parameters behind it or not, is JSON, which pages from elsewhere cannot send unasked.
[[nodiscard]] bool is_json_type(std::string_view type);

// Others than this machine reach a port at HOST, which may be resolved.
[[nodiscard]] bool listens_publicly(const std::string& host);

}  // namespace dslaunch::server
