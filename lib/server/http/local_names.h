// Checks the host names by which clients reach a server that requires no key. A browser on this
// machine may show a web page from elsewhere. Such a page must not reach the server, not even by a
// name that was changed to mean this machine (DNS rebinding). Pure except for listens_publicly().
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::server {

// Returns true if HOST, the value of the field Host with or without a port, is localhost, in
// 127.0.0.0/8, or [::1]. Other names are not accepted, because the owner of a name can let it point
// to these addresses.
[[nodiscard]] bool is_local_host(std::string_view host);
// Returns true if ORIGIN is a page of this machine: http:// or https:// and a host that
// is_local_host() accepts.
[[nodiscard]] bool is_local_origin(std::string_view origin);
// Returns true if TYPE, with or without parameters, is JSON. A page from elsewhere cannot send JSON
// unless the browser has asked the server first (CORS).
[[nodiscard]] bool is_json_type(std::string_view type);

// Returns true if other machines can reach a port at HOST. May resolve the name.
[[nodiscard]] bool listens_publicly(const std::string& host);

}  // namespace dslaunch::server
