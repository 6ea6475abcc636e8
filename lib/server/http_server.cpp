#include "server/http_server.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/http/local_names.h"

namespace dslaunch::server {

namespace {

ConnectionLimits limits_of(const ServerOptions& options) {
    ConnectionLimits limits;
    limits.answers_max = options.answers_max;
    limits.request.body_bytes_max = static_cast<size_t>(options.body_bytes_max);
    return limits;
}

}  // namespace

HttpServer::HttpServer(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
                       const ServerOptions& options)
    : options_(options),
      budget_(options.requests_bytes_max),
      routes_(service, codec, std::move(render), options),
      server_(limits_of(options), budget_, routes_) {}

void HttpServer::require_key(const ServerOptions& options) {
    if (options.api_key.empty() && listens_publicly(options.host))
        fail(ExitCode::kUsage,
             "--host {}: other machines can reach this address, and without an API key the server "
             "would answer all of them; add --api-key-file FILE, or remove --host",
             printable(options.host));
}

int HttpServer::bind() {
    require_key(options_);
    return server_.bind(options_.host, options_.port);
}

}  // namespace dslaunch::server
