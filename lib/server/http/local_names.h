// Checks the names by which clients call a server that wants no key. A page from elsewhere, read by
// a browser of this machine, must not reach it, not even by a name that has come to mean this
// machine (DNS rebinding). Pure but for listens_publicly().
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::server {

// Returns true if HOST, the field Host with or without a port, names this machine: localhost,
// 127.0.0.0/8 or [::1]. Anyone may have given this address to another name.
[[nodiscard]] bool is_local_host(std::string_view host);
// Returns true if ORIGIN is a page of this machine: http:// or https:// before such a host.
[[nodiscard]] bool is_local_origin(std::string_view origin);
// Returns true if TYPE, with parameters or without, is JSON: pages from elsewhere cannot send it
// unasked.
[[nodiscard]] bool is_json_type(std::string_view type);

// Returns true if other machines reach a port at HOST, which may be resolved.
[[nodiscard]] bool listens_publicly(const std::string& host);

}  // namespace dslaunch::server
