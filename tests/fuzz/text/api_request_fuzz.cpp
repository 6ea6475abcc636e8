// Requests of OpenAI's protocol: whatever the bytes are, the answer is a request within its bounds
// or an error with a reason, and both have their JSON.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "infer/sample/sampler.h"
#include "serve/api_reply.h"
#include "serve/api_request.h"

using namespace dslaunch;
using namespace dslaunch::serve;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const ApiKind kind = data[0] % 2 == 0 ? ApiKind::kCompletion : ApiKind::kChat;
    const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
    const auto parsed = parse_api_request(kind, body, {});
    if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
        DSL_CHECK(error->status == 400 && !error->message.empty(), "an error without a reason");
        DSL_CHECK(nlohmann::json::accept(error_json(*error)), "an error that is no JSON");
        return 0;
    }
    const ApiRequest& request = std::get<ApiRequest>(parsed);
    // Throws for options out of range.
    static_cast<void>(infer::Sampler(request.sampling));
    const bool has_prompt = kind == ApiKind::kChat
                                ? !request.messages.empty()
                                : !request.prompts.empty() || !request.prompt_tokens.empty();
    DSL_CHECK(has_prompt && request.choices > 0, "a request for nothing");
    DSL_CHECK(!request.tokens_max || *request.tokens_max > 0, "a request for no token");
    for (const std::string& stop : request.stops) DSL_CHECK(!stop.empty(), "an empty stop");
    const std::string text = request.prompts.empty() ? "" : request.prompts.front();
    DSL_CHECK(nlohmann::json::accept(
                  whole_reply({kind, "id", request.model, 0}, {{0, text, TextEnd::kStop}}, {})),
              "a reply that is no JSON");
    return 0;
}
