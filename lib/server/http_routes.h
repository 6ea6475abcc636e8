// The paths of a server: OpenAI's /v1/completions, /v1/chat/completions and /v1/models, and also
// /health and /metrics. Data path: connection_server.h -> [here] -> text_service.h. Threads: any,
// several at once.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/text/json.h"
#include "decoder/codec/text_codec.h"
#include "server/api_reply.h"
#include "server/http/http_message.h"
#include "server/server_options.h"
#include "server/text_service.h"

namespace dslaunch::server {

// Answers each path of the server.
class HttpRoutes final : public HttpHandler {
  public:
    // SERVICE and CODEC must outlive this object. RENDER is empty if there is no chat template.
    HttpRoutes(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
               ServerOptions options);
    HttpRoutes(const HttpRoutes&) = delete;
    HttpRoutes& operator=(const HttpRoutes&) = delete;

    [[nodiscard]] std::optional<HttpReply> refuse(const RequestHead& head) override;
    [[nodiscard]] bool is_quick(const RequestHead& head) override;
    [[nodiscard]] HttpReply answer(HttpRequest& request, const ReplySink& client) override;
    [[nodiscard]] HttpReply error(int status, std::string_view why) override;

  private:
    [[nodiscard]] bool has_key(const RequestHead& head) const;
    [[nodiscard]] std::optional<ApiError> foreign(const RequestHead& head) const;
    [[nodiscard]] std::optional<HttpReply> refusal_of(const RequestHead& head) const;
    // Returns the error for a request whose path or method does not exist; nothing if both exist.
    [[nodiscard]] std::optional<ApiError> misplaced(const RequestHead& head) const;
    [[nodiscard]] HttpReply health() const;
    [[nodiscard]] std::string models_json() const;
    // Writes the description of the only model.
    void write_model(JsonWriter& json) const;
    // Returns true if a request for the model NAME means this server's model: NAME is empty, or its
    // last part is this model's name, as in ORG/NAME.
    [[nodiscard]] bool is_own_model(std::string_view name) const;
    [[nodiscard]] ApiError other_model(std::string_view model, std::string_view advice) const;
    [[nodiscard]] HttpReply answer_of(HttpRequest& request, const ReplySink& client);
    [[nodiscard]] HttpReply complete(ApiKind kind, HttpRequest& http, const ReplySink& client);
    [[nodiscard]] HttpReply answer_texts(ApiRequest request, MemoryLease& lease,
                                         const ReplySink& client);
    // Returns REQUEST's prompts as texts; may move the texts out of REQUEST. Returns nothing if the
    // texts do not fit in LEASE's budget.
    [[nodiscard]] std::optional<std::vector<std::string>> texts_of(ApiRequest& request,
                                                                   MemoryLease& lease) const;
    [[nodiscard]] TextRequest text_request(const ApiRequest& request,
                                           const std::vector<int32_t>& prompt, int choice) const;
    // Returns the largest number of tokens to make after a prompt of PROMPT_TOKENS tokens. Throws
    // Error{kInput} if there is no room for any.
    [[nodiscard]] int64_t tokens_max_of(const ApiRequest& request, int64_t prompt_tokens) const;
    [[nodiscard]] ReplyHead head_of(ApiKind kind) const;
    // Returns the tokens of PROMPTS. Encoding a long text temporarily takes many times its size in
    // memory. Returns nothing if this memory does not fit in LEASE's budget.
    [[nodiscard]] std::optional<std::vector<std::vector<int32_t>>> encode(
        const std::vector<std::string>& prompts, bool is_rendered, MemoryLease& lease);

    TextService& service_;
    const decoder::TextCodec& codec_;
    ChatRenderer render_;
    ServerOptions options_;
    std::mutex long_texts_;  // held while a long text is encoded
};

}  // namespace dslaunch::server
