// `dslaunch serve` over HTTP: a port and its paths (http_routes.h). Data path: sockets ->
// connection_server.h -> http_routes.h -> text_service.h. Threads: one for each request that is
// being answered, up to a limit; run() blocks.
#pragma once

#include "server/http/connection_server.h"
#include "server/http_routes.h"

namespace dslaunch::server {

// A server of one model.
class HttpServer {
  public:
    // SERVICE and CODEC must outlive this object. RENDER is empty if there is no chat template.
    HttpServer(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
               const ServerOptions& options);

    // Throws Error{kUsage} if other machines could reach the server and it does not require a key.
    static void require_key(const ServerOptions& options);

    // Opens the port and returns its number. Throws Error{kSetup} if the port is in use or the host
    // is not an address of this machine, and the error of require_key().
    int bind();
    // Serves until stop() is called and all requests are answered. REQUIRES: bind().
    void run() { server_.run(); }
    // Stops accepting requests. Any thread, also before run().
    void stop() noexcept { server_.end(); }

  private:
    ServerOptions options_;
    RequestBudget budget_;
    HttpRoutes routes_;
    ConnectionServer server_;
};

}  // namespace dslaunch::server
