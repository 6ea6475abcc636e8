// `dslaunch serve` over HTTP: OpenAI's /v1/completions, /v1/chat/completions and /v1/models, with
// /health and /metrics beside them. Data path: sockets -> cpp-httplib -> [here] -> text_service.h.
// Threads: one for each connection that is open, up to a bound; run() blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "infer/text/text_codec.h"
#include "serve/text_service.h"

namespace dslaunch::serve {

struct ServerOptions {
    std::string host = "127.0.0.1";
    int port = 8000;                  // 0: one that is free
    std::string api_key;              // what clients must send as a bearer token; empty: nothing
    std::string model;                // the name that clients see
    infer::SamplingOptions sampling;  // where a request is silent
    int64_t context = 0;              // tokens of a text, its prompt among them
    int connections_max = 512;
    int64_t body_bytes_max = int64_t{16} << 20;
};

// The text of a chat for the model, with the start of its answer. Throws Error{kInput} for messages
// that its template refuses.
using ChatRenderer = std::function<std::string(const nlohmann::ordered_json& messages,
                                               const nlohmann::ordered_json& tools)>;

class HttpServer {
  public:
    // SERVICE and CODEC must outlive this. RENDER: empty if the model has no chat template.
    HttpServer(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
               ServerOptions options);
    ~HttpServer();

    // Takes the port, and returns its number. Throws Error{kSetup} when it is taken or the host is
    // none of this machine's.
    int bind();
    // Serves until stop(). REQUIRES: bind().
    void run();
    // Any thread; a signal's handler may not call it.
    void stop();

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace dslaunch::serve
