// `dslaunch serve` over HTTP: a port, and the paths of it (http_routes.h). Data path: sockets ->
// connection_server.h -> http_routes.h -> text_service.h. Threads: one for each request that is
// answered, up to a bound; run() blocks.
#pragma once

#include "server/http/connection_server.h"
#include "server/http_routes.h"

namespace dslaunch::server {

class HttpServer {
  public:
    // SERVICE and CODEC must outlive this. RENDER: empty if the model has no chat template.
    HttpServer(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
               const ServerOptions& options);

    // Throws Error{kUsage} when other machines could reach the server, and it asks for no key.
    static void require_key(const ServerOptions& options);

    // Takes the port, and returns its number. Throws Error{kSetup} when it is taken or the host is
    // not this machine's, and as require_key() does.
    int bind();
    // Serves until stop(), and then until all requests are answered. REQUIRES: bind().
    void run() { server_.run(); }
    // Takes no more requests. Any thread, also before run().
    void stop() noexcept { server_.end(); }

  private:
    ServerOptions options_;
    MemoryAccount account_;
    HttpRoutes routes_;
    ConnectionServer server_;
};

}  // namespace dslaunch::server
