#include "serve/api_request.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::serve {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kPromptsMax = 256;
constexpr int64_t kChoicesMax = 16;
constexpr int64_t kStopsMax = 16;
constexpr size_t kStopBytesMax = 1000;
constexpr int kDepthMax = 64;
constexpr int64_t kTokensMax = int64_t{1} << 30;

// Thrown inside this file alone.
struct Refusal {
    ApiError error;
};

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
    throw Refusal{{400, fmt::format("{} {}", field, why), field}};
}

int depth_of(std::string_view text) {
    int depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if (c == '}' || c == ']') {
            --depth;
        }
    }
    return deepest;
}

class RequestReader {
  public:
    explicit RequestReader(const Json& json) : json_(json) {}

    [[nodiscard]] const Json* find(const char* field) const {
        const auto found = json_.find(field);
        return found == json_.end() || found->is_null() ? nullptr : &*found;
    }
    [[nodiscard]] double number(const char* field, double otherwise, double least,
                                double most) const {
        const Json* value = find(field);
        if (value == nullptr) return otherwise;
        if (!value->is_number()) refuse(field, "must be a number");
        const auto number = value->get<double>();
        if (!(number >= least && number <= most))
            refuse(field, fmt::format("is {}, and must be between {} and {}", number, least, most));
        return number;
    }
    [[nodiscard]] std::optional<int64_t> integer(const char* field, int64_t least,
                                                 int64_t most) const {
        const Json* value = find(field);
        if (value == nullptr) return std::nullopt;
        // Numbers beyond 64 bits, and those with a point, are doubles.
        const double number = value->is_number() ? value->get<double>() : NAN;
        if (number != std::floor(number)) refuse(field, "must be an integer");
        if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)))
            refuse(field, fmt::format("is {}, and must be between {} and {}", number, least, most));
        return static_cast<int64_t>(number);
    }
    [[nodiscard]] bool flag(const char* field) const {
        const Json* value = find(field);
        if (value == nullptr) return false;
        if (!value->is_boolean()) refuse(field, "must be true or false");
        return value->get<bool>();
    }
    [[nodiscard]] std::string text(const char* field) const {
        const Json* value = find(field);
        if (value == nullptr) return "";
        if (!value->is_string()) refuse(field, "must be a string");
        return value->get<std::string>();
    }
    // Refuses FIELD unless it is absent or says what the default says.
    void require_default(const char* field, const Json& otherwise) const {
        const Json* value = find(field);
        const bool is_empty =
            value != nullptr && (value->is_object() || value->is_array()) && value->empty();
        if (value == nullptr || is_empty || *value == otherwise) return;
        refuse(field, "is not supported by this server; leave it out");
    }

  private:
    const Json& json_;
};

void read_sampling(const RequestReader& reader, const infer::SamplingOptions& defaults,
                   ApiRequest& request) {
    infer::SamplingOptions& sampling = request.sampling;
    sampling = defaults;
    sampling.temperature = reader.number("temperature", defaults.temperature, 0, 100);
    sampling.top_p = reader.number("top_p", defaults.top_p, 1e-9, 1);
    sampling.min_p = reader.number("min_p", defaults.min_p, 0, 1);
    // -1 stands for all tokens in other servers.
    sampling.top_k =
        std::max<int64_t>(reader.integer("top_k", -1, kTokensMax).value_or(defaults.top_k), 0);
    sampling.repetition_penalty =
        reader.number("repetition_penalty", defaults.repetition_penalty, 1e-3, 1e3);
    if (const auto seed = reader.integer("seed", INT64_MIN / 2, INT64_MAX / 2)) {
        sampling.seed = static_cast<uint64_t>(*seed);
        request.has_seed = true;
    }
    for (const char* field : {"presence_penalty", "frequency_penalty"})
        if (reader.number(field, 0, -2, 2) != 0)
            refuse(field, "is not supported by this server; take repetition_penalty");
}

void read_stops(const RequestReader& reader, ApiRequest& request) {
    const Json* stop = reader.find("stop");
    if (stop == nullptr) return;
    const auto add = [&](const Json& text) {
        if (!text.is_string()) refuse("stop", "must be a string or a list of strings");
        auto word = text.get<std::string>();
        if (word.empty() || word.size() > kStopBytesMax)
            refuse("stop", fmt::format("must have 1 to {} bytes", kStopBytesMax));
        request.stops.push_back(std::move(word));
    };
    if (!stop->is_array()) return add(*stop);
    if (std::ssize(*stop) > kStopsMax)
        refuse("stop", fmt::format("has more than {} strings", kStopsMax));
    for (const Json& text : *stop) add(text);
}

std::vector<int32_t> tokens_in(const Json& list) {
    std::vector<int32_t> tokens;
    for (const Json& token : list) {
        if (!token.is_number_integer() || token.get<int64_t>() < 0 ||
            token.get<int64_t>() > INT32_MAX)
            refuse("prompt", "has a token that is no number of one");
        tokens.push_back(token.get<int32_t>());
    }
    return tokens;
}

// A string, a list of strings, a list of tokens, or a list of such lists.
void read_prompt(const RequestReader& reader, ApiRequest& request) {
    const Json* prompt = reader.find("prompt");
    if (prompt == nullptr) refuse("prompt", "is missing");
    if (prompt->is_string()) {
        request.prompts.push_back(prompt->get<std::string>());
        return;
    }
    if (!prompt->is_array() || prompt->empty())
        refuse("prompt", "must be a string, or a list of strings or of tokens");
    if (prompt->front().is_number()) {
        request.prompt_tokens.push_back(tokens_in(*prompt));
        return;
    }
    if (std::ssize(*prompt) > kPromptsMax)
        refuse("prompt", fmt::format("has more than {} texts", kPromptsMax));
    for (const Json& text : *prompt) {
        const bool same_kind = text.type() == prompt->front().type();
        if (same_kind && text.is_string()) {
            request.prompts.push_back(text.get<std::string>());
        } else if (same_kind && text.is_array()) {
            request.prompt_tokens.push_back(tokens_in(text));
        } else {
            refuse("prompt", "must be a string, or a list of strings or of tokens");
        }
    }
}

void read_messages(const RequestReader& reader, ApiRequest& request) {
    const Json* messages = reader.find("messages");
    if (messages == nullptr) refuse("messages", "is missing");
    if (!messages->is_array() || messages->empty())
        refuse("messages", "must be a list with at least one message");
    for (const Json& message : *messages) {
        if (!message.is_object()) refuse("messages", "must be a list of objects");
        const auto role = message.find("role");
        if (role == message.end() || !role->is_string() || role->get<std::string>().empty())
            refuse("messages", "has a message without a role");
        const auto content = message.find("content");
        const bool has_calls = message.contains("tool_calls");
        if (content == message.end() && !has_calls)
            refuse("messages", "has a message without content");
        if (content != message.end() && !content->is_string() && !content->is_array() &&
            !content->is_null())
            refuse("messages", "has content that is neither a string nor a list of parts");
        if (content == message.end() || !content->is_array()) continue;
        for (const Json& part : *content) {
            const auto type = part.is_object() ? part.find("type") : part.end();
            if (!part.is_object() || type == part.end() || *type != "text" ||
                !part.contains("text") || !part["text"].is_string())
                refuse("messages", "has a part that is no text: this server reads text alone");
        }
    }
    request.messages = *messages;
    if (const Json* tools = reader.find("tools")) {
        if (!tools->is_array()) refuse("tools", "must be a list");
        if (!tools->empty()) request.tools = *tools;
    }
}

ApiRequest read_request(ApiKind kind, const Json& json, const infer::SamplingOptions& defaults) {
    if (!json.is_object()) throw Refusal{{400, "the body must be a JSON object", ""}};
    const RequestReader reader(json);
    ApiRequest request;
    request.kind = kind;
    request.model = reader.text("model");
    if (kind == ApiKind::kChat) {
        read_messages(reader, request);
        request.tokens_max = reader.integer("max_completion_tokens", 1, kTokensMax);
        if (!request.tokens_max) request.tokens_max = reader.integer("max_tokens", 1, kTokensMax);
        reader.require_default("logprobs", false);
        reader.require_default("top_logprobs", 0);
        reader.require_default("response_format", Json{{"type", "text"}});
        reader.require_default("tool_choice", "auto");
    } else {
        constexpr int64_t kTokensOfProtocol = 16;  // where a completion is silent
        read_prompt(reader, request);
        request.tokens_max =
            reader.integer("max_tokens", 1, kTokensMax).value_or(kTokensOfProtocol);
        request.echo = reader.flag("echo");
        if (request.echo && !request.prompt_tokens.empty())
            refuse("echo", "is for a prompt that is text, and this one is token ids");
        reader.require_default("logprobs", false);
        reader.require_default("suffix", "");
        reader.require_default("best_of", 1);
    }
    reader.require_default("logit_bias", Json::object());
    read_sampling(reader, defaults, request);
    read_stops(reader, request);
    request.choices = static_cast<int>(reader.integer("n", 1, kChoicesMax).value_or(1));
    request.stream = reader.flag("stream");
    if (const Json* options = reader.find("stream_options")) {
        if (!options->is_object()) refuse("stream_options", "must be an object");
        request.stream_usage = RequestReader(*options).flag("include_usage");
    }
    return request;
}

}  // namespace

std::variant<ApiRequest, ApiError> parse_api_request(ApiKind kind, std::string_view body,
                                                     const infer::SamplingOptions& defaults) {
    if (depth_of(body) > kDepthMax)
        return ApiError{400, fmt::format("the body is nested deeper than {}", kDepthMax), ""};
    const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return ApiError{400, "the body is no JSON", ""};
    try {
        return read_request(kind, json, defaults);
    } catch (const Refusal& refusal) {
        return refusal.error;
    }
}

std::string error_json(const ApiError& error) {
    JsonWriter json;
    json.begin_object().key("error").begin_object();
    json.field("message", error.message);
    json.field("type", error.status == 429  ? "rate_limit_error"
                       : error.status < 500 ? "invalid_request_error"
                                            : "server_error");
    json.key("param");
    if (error.parameter.empty()) {
        json.null();
    } else {
        json.value(error.parameter);
    }
    json.key("code").null();
    json.end_object().end_object();
    return json.text();
}

}  // namespace dslaunch::serve
