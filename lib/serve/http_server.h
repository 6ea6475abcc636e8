// `dslaunch serve` over HTTP: a port, and what stands at each path of it (http_routes.h). Data
// path: sockets -> bounded_server.h -> http_routes.h -> text_service.h. Threads: one for each
// connection that is open, up to a bound; run() blocks.
#pragma once

#include <memory>

#include "infer/text/text_codec.h"
#include "serve/server_options.h"
#include "serve/text_service.h"

namespace dslaunch::serve {

class HttpServer {
  public:
    // SERVICE and CODEC must outlive this. RENDER: empty if the model has no chat template.
    HttpServer(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
               const ServerOptions& options);
    ~HttpServer();

    // Takes the port, and returns its number. Throws Error{kSetup} when it is taken or the host is
    // none of this machine's.
    int bind();
    // Serves until stop(), and then until what was asked for is answered. REQUIRES: bind().
    void run();
    // Takes no more requests. Any thread, also before run(), which must be called; a signal's
    // handler may not call it.
    void stop();

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace dslaunch::serve
