#include "server/http_server.h"

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/http/connection_server.h"
#include "server/http/local_names.h"
#include "server/http_routes.h"

namespace dslaunch::server {

namespace {

ConnectionLimits limits_of(const ServerOptions& options) {
    ConnectionLimits limits;
    limits.answers_max = options.answers_max;
    limits.request.body_bytes_max = static_cast<size_t>(options.body_bytes_max);
    return limits;
}

}  // namespace

class HttpServer::Implementation {
  public:
    Implementation(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
                   const ServerOptions& options)
        : options_(options),
          account_(options.requests_bytes_max),
          routes_(service, codec, std::move(render), options),
          server_(limits_of(options), account_, routes_) {}

    int bind() {
        require_key(options_);
        return server_.bind(options_.host, options_.port);
    }
    void run() { server_.run(); }
    void stop() noexcept { server_.end(); }

  private:
    ServerOptions options_;
    MemoryAccount account_;
    HttpRoutes routes_;
    ConnectionServer server_;
};

HttpServer::HttpServer(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
                       const ServerOptions& options)
    : implementation_(
          std::make_unique<Implementation>(service, codec, std::move(render), options)) {}
HttpServer::~HttpServer() = default;

void HttpServer::require_key(const ServerOptions& options) {
    if (options.api_key.empty() && listens_publicly(options.host))
        fail(ExitCode::kUsage,
             "--host {}: others than this machine reach it, and whoever does would be served, as "
             "no key is wanted; give --api-key-file FILE, or leave --host out",
             printable(options.host));
}

int HttpServer::bind() {
    return implementation_->bind();
}
void HttpServer::run() {
    implementation_->run();
}
void HttpServer::stop() noexcept {
    implementation_->stop();
}

}  // namespace dslaunch::server
