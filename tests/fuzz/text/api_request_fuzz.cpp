// libFuzzer entry: reads any bytes as a request of OpenAI's protocol. The result is a request
// within its bounds, or an error with a reason; both can be written as JSON. The body means the
// same to another library, and all memory that it takes is returned.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "decoder/sample/sampler.h"
#include "server/api_reply.h"
#include "server/api_request.h"
#include "server/json/json_document.h"
#include "unit/server/json/as_json.h"

using namespace dslaunch;
using namespace dslaunch::server;

namespace {

using nlohmann::json;

// Checks that both readers agree on BODY. Only this reader refuses keys that occur twice and deep
// nesting. The other one treats a zero byte as the end.
void check_document(const std::string& body, MemoryLease& lease) {
    const auto read = JsonDocument::read(body, lease);
    const json other = json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (const JsonFault* fault = std::get_if<JsonFault>(&read)) {
        const bool is_own = fault->short_of_memory || body.find('\0') != body.npos ||
                            fault->why.find("twice") != std::string::npos ||
                            fault->why.find("deeper") != std::string::npos;
        DSL_CHECK(is_own || other.is_discarded(), "JSON is refused: {}", fault->why);
        return;
    }
    DSL_CHECK(!other.is_discarded(), "what is no JSON is read");
    DSL_CHECK(as_json(std::get<JsonDocument>(read).root()) == other, "JSON is read otherwise");
}

void check_request(ApiKind kind, const ApiRequest& request) {
    // Throws for options out of range.
    static_cast<void>(decoder::Sampler(request.sampling));
    const bool has_prompt = kind == ApiKind::kChat
                                ? request.messages && request.messages->elements() > 0
                                : !request.prompts.empty() || !request.prompt_tokens.empty();
    DSL_CHECK(has_prompt && request.choices > 0, "a request for nothing");
    DSL_CHECK(!request.tokens_max || *request.tokens_max > 0, "a request for no token");
    if (request.stops)
        for (const std::string& stop : *request.stops) DSL_CHECK(!stop.empty(), "an empty stop");
    const std::string text = request.prompts.empty() ? "" : request.prompts.front();
    DSL_CHECK(
        json::accept(whole_reply({kind, "id", request.model, 0}, {{0, text, TextEnd::kStop}}, {})),
        "a reply that is no JSON");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const ApiKind kind = data[0] % 2 == 0 ? ApiKind::kCompletion : ApiKind::kChat;
    const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
    // Some inputs get very little memory.
    RequestBudget account(data[0] < 32 ? int64_t{data[0]} * 64 : int64_t{1} << 24);
    const int64_t before = account.bytes_taken();
    {
        MemoryLease lease(account);
        check_document(body, lease);
        lease.shrink_to(0);
        const auto parsed = parse_api_request(kind, body, {}, lease);
        if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
            DSL_CHECK((error->status == 400 || error->status == 503) && !error->message.empty(),
                      "an error without a reason");
            DSL_CHECK(json::accept(error_json(*error)), "an error that is no JSON");
        } else {
            check_request(kind, std::get<ApiRequest>(parsed));
        }
    }
    DSL_CHECK(account.bytes_taken() == before, "memory is not given back");
    return 0;
}
