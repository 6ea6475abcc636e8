#include "serve/http_server.h"

#include <sys/socket.h>

#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "serve/bounded_server.h"
#include "serve/http_routes.h"

namespace dslaunch::serve {

namespace {

constexpr int kBacklog = 1024;  // connections that wait to be accepted
constexpr int kFirstFreePort = 1024;

}  // namespace

class HttpServer::Implementation {
  public:
    Implementation(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
                   const ServerOptions& options)
        : host_(options.host),
          port_(options.port),
          routes_(service, codec, std::move(render), options),
          server_(options.connections_max, ConnectionLimits{}) {
        server_.set_tcp_nodelay(true);
        // The library's own options would let a second server share the port.
        server_.set_socket_options([this](socket_t socket) {
            const int on = 1;
            ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            socket_ = socket;
        });
        routes_.add_to(server_);
    }

    int bind() {
        int port = port_;
        const bool bound = port == 0 ? (port = server_.bind_to_any_port(host_)) > 0
                                     : server_.bind_to_port(host_, port);
        if (!bound)
            fail(ExitCode::kSetup,
                 "cannot listen at {}:{}: the port is taken (by another `dslaunch serve`?), the "
                 "address is none of this machine's{}; give another --port or --host",
                 printable(host_), port_,
                 port_ > 0 && port_ < kFirstFreePort ? ", or ports below 1024 need root" : "");
        // The library lets five connections wait to be accepted, and the system resets others of a
        // burst.
        if (::listen(socket_, kBacklog) != 0)
            fail(ExitCode::kSetup, "cannot listen: {}", errno_text(errno));
        return port;
    }
    void run() { server_.run(); }
    void stop() { server_.end(); }

  private:
    std::string host_;
    int port_;
    socket_t socket_ = INVALID_SOCKET;  // the one that was bound; owned by server_
    HttpRoutes routes_;
    BoundedServer server_;
};

HttpServer::HttpServer(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
                       const ServerOptions& options)
    : implementation_(
          std::make_unique<Implementation>(service, codec, std::move(render), options)) {}
HttpServer::~HttpServer() = default;
int HttpServer::bind() {
    return implementation_->bind();
}
void HttpServer::run() {
    implementation_->run();
}
void HttpServer::stop() {
    implementation_->stop();
}

}  // namespace dslaunch::serve
