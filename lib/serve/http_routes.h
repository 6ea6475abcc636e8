// What stands at each path of a server: OpenAI's /v1/completions, /v1/chat/completions and
// /v1/models, with /health and /metrics beside them. Data path: bounded_server.h -> [here] ->
// text_service.h. Threads: its handlers run in that of each connection.
#pragma once

#include <httplib.h>

#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "serve/api_reply.h"
#include "serve/server_options.h"
#include "serve/text_service.h"

namespace dslaunch::serve {

class HttpRoutes {
  public:
    // SERVICE and CODEC must outlive this. RENDER: as HttpServer's.
    HttpRoutes(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
               ServerOptions options);
    HttpRoutes(const HttpRoutes&) = delete;
    HttpRoutes& operator=(const HttpRoutes&) = delete;

    // This must outlive SERVER.
    void add_to(httplib::Server& server);

  private:
    using Request = httplib::Request;
    using Response = httplib::Response;

    [[nodiscard]] bool is_allowed(const Request& request) const;
    [[nodiscard]] std::string models_json() const;
    void complete(ApiKind kind, const Request& http, Response& response);
    void answer_texts(const ApiRequest& request, Response& response);
    [[nodiscard]] std::vector<std::string> texts_of(const ApiRequest& request) const;
    [[nodiscard]] TextRequest text_request(const ApiRequest& request,
                                           const std::vector<int32_t>& prompt, int choice) const;
    [[nodiscard]] ReplyHead head_of(ApiKind kind) const;

    // The tokens of PROMPTS. A long text takes many times its size of memory meanwhile.
    [[nodiscard]] std::vector<std::vector<int32_t>> encode(const std::vector<std::string>& prompts,
                                                           bool is_rendered);

    TextService& service_;
    const infer::TextCodec& codec_;
    ChatRenderer render_;
    ServerOptions options_;
    std::mutex long_texts_;  // held by the one that is encoded
};

}  // namespace dslaunch::serve
