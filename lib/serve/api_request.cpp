#include "serve/api_request.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/text/json.h"

namespace dslaunch::serve {

namespace {

constexpr int64_t kPromptsMax = 256;
constexpr int64_t kChoicesMax = 16;
constexpr int64_t kStopsMax = 16;
constexpr size_t kStopBytesMax = 1000;
constexpr int64_t kTokensMax = int64_t{1} << 30;

// Thrown inside this file alone.
struct Refusal {
    ApiError error;
};

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
    throw Refusal{{400, fmt::format("{} {}", field, why), field}};
}

// Pays for BYTES that the request holds.
void charge(MemoryLease& lease, size_t bytes) {
    if (!lease.grow(static_cast<int64_t>(bytes))) throw Refusal{short_of_memory()};
}

class FieldReader {
  public:
    // REQUIRES: an object.
    explicit FieldReader(JsonView json) : json_(json) {}

    // Nothing: it is absent, or null.
    [[nodiscard]] std::optional<JsonView> find(std::string_view field) const {
        const auto found = json_.find(field);
        return found && !found->is(JsonKind::kNull) ? found : std::nullopt;
    }
    [[nodiscard]] double number(const char* field, double otherwise, double least,
                                double most) const {
        const auto value = find(field);
        if (!value) return otherwise;
        if (!value->is_number()) refuse(field, "must be a number");
        const double number = value->real();
        if (!(number >= least && number <= most))
            refuse(field, fmt::format("is {}, and must be between {} and {}", number, least, most));
        return number;
    }
    [[nodiscard]] std::optional<int64_t> integer(const char* field, int64_t least,
                                                 int64_t most) const {
        const auto value = find(field);
        if (!value) return std::nullopt;
        // Numbers beyond 64 bits, and those with a point, are doubles.
        const double number = value->is_number() ? value->real() : NAN;
        if (number != std::floor(number)) refuse(field, "must be an integer");
        if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)))
            refuse(field, fmt::format("is {}, and must be between {} and {}", number, least, most));
        return value->is(JsonKind::kInteger) ? value->integer() : static_cast<int64_t>(number);
    }
    [[nodiscard]] bool flag(const char* field) const {
        const auto value = find(field);
        if (!value) return false;
        if (!value->is(JsonKind::kBool)) refuse(field, "must be true or false");
        return value->flag();
    }
    [[nodiscard]] std::string_view text(const char* field) const {
        const auto value = find(field);
        if (!value) return "";
        if (!value->is(JsonKind::kText)) refuse(field, "must be a string");
        return value->text();
    }
    // Refuses FIELD unless it is absent, empty, or IS_DEFAULT.
    void require_default(const char* field, bool (*is_default)(JsonView)) const {
        const auto value = find(field);
        if (!value || is_default(*value)) return;
        const bool is_list = value->is(JsonKind::kObject) || value->is(JsonKind::kArray);
        if (is_list && value->elements() == 0) return;
        refuse(field, "is not supported by this server; leave it out");
    }

  private:
    JsonView json_;
};

bool is_never(JsonView) {
    return false;
}

bool is_false(JsonView value) {
    return value.is(JsonKind::kBool) && !value.flag();
}

template <int kNumber>
bool is_number(JsonView value) {
    return value.is_number() && value.real() == kNumber;
}

bool is_auto(JsonView value) {
    return value.is(JsonKind::kText) && value.text() == "auto";
}

bool is_empty_text(JsonView value) {
    return value.is(JsonKind::kText) && value.text().empty();
}

// {"type": "text"}
bool is_text_format(JsonView value) {
    if (!value.is(JsonKind::kObject) || value.elements() != 1) return false;
    const auto type = value.find("type");
    return type && type->is(JsonKind::kText) && type->text() == "text";
}

void read_sampling(const FieldReader& reader, const infer::SamplingOptions& defaults,
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

void read_stops(const FieldReader& reader, ApiRequest& request) {
    const auto stop = reader.find("stop");
    if (!stop) return;
    const auto add = [&](JsonView text) {
        if (!text.is(JsonKind::kText)) refuse("stop", "must be a string or a list of strings");
        const std::string_view word = text.text();
        if (word.empty() || word.size() > kStopBytesMax)
            refuse("stop", fmt::format("must have 1 to {} bytes", kStopBytesMax));
        request.stops.emplace_back(word);
    };
    if (!stop->is(JsonKind::kArray)) return add(*stop);
    if (stop->elements() > kStopsMax)
        refuse("stop", fmt::format("has more than {} strings", kStopsMax));
    for (const JsonView text : stop->items()) add(text);
}

void add_tokens(JsonView list, ApiRequest& request, MemoryLease& lease) {
    charge(lease, static_cast<size_t>(list.elements()) * sizeof(int32_t));
    std::vector<int32_t> tokens;
    tokens.reserve(static_cast<size_t>(list.elements()));
    for (const JsonView token : list.items()) {
        if (!token.is(JsonKind::kInteger) || token.integer() < 0 || token.integer() > INT32_MAX)
            refuse("prompt", "has a token that is no number of one");
        tokens.push_back(static_cast<int32_t>(token.integer()));
    }
    request.prompt_tokens.push_back(std::move(tokens));
}

void add_text(JsonView text, ApiRequest& request, MemoryLease& lease) {
    charge(lease, text.text().size());
    request.prompts.emplace_back(text.text());
}

// A string, a list of strings, a list of tokens, or a list of such lists.
void read_prompt(const FieldReader& reader, ApiRequest& request, MemoryLease& lease) {
    const auto prompt = reader.find("prompt");
    if (!prompt) refuse("prompt", "is missing");
    if (prompt->is(JsonKind::kText)) return add_text(*prompt, request, lease);
    if (!prompt->is(JsonKind::kArray) || prompt->elements() == 0)
        refuse("prompt", "must be a string, or a list of strings or of tokens");
    const JsonView first = *prompt->items().begin();
    if (first.is_number()) return add_tokens(*prompt, request, lease);
    if (prompt->elements() > kPromptsMax)
        refuse("prompt", fmt::format("has more than {} texts", kPromptsMax));
    for (const JsonView text : prompt->items()) {
        if (text.is(JsonKind::kText) && first.is(JsonKind::kText)) {
            add_text(text, request, lease);
        } else if (text.is(JsonKind::kArray) && first.is(JsonKind::kArray)) {
            add_tokens(text, request, lease);
        } else {
            refuse("prompt", "must be a string, or a list of strings or of tokens");
        }
    }
}

void check_parts(JsonView content) {
    for (const JsonView part : content.items()) {
        const auto type = part.is(JsonKind::kObject) ? part.find("type") : std::nullopt;
        const auto text = part.is(JsonKind::kObject) ? part.find("text") : std::nullopt;
        if (!type || !type->is(JsonKind::kText) || type->text() != "text" || !text ||
            !text->is(JsonKind::kText))
            refuse("messages", "has a part that is no text: this server reads text alone");
    }
}

void check_message(JsonView message) {
    if (!message.is(JsonKind::kObject)) refuse("messages", "must be a list of objects");
    const auto role = message.find("role");
    if (!role || !role->is(JsonKind::kText) || role->text().empty())
        refuse("messages", "has a message without a role");
    const auto content = message.find("content");
    if (!content) {
        if (!message.find("tool_calls")) refuse("messages", "has a message without content");
        return;
    }
    if (content->is(JsonKind::kArray)) return check_parts(*content);
    if (!content->is(JsonKind::kText) && !content->is(JsonKind::kNull))
        refuse("messages", "has content that is neither a string nor a list of parts");
}

void read_messages(const FieldReader& reader, ApiRequest& request) {
    request.messages = reader.find("messages");
    if (!request.messages) refuse("messages", "is missing");
    if (!request.messages->is(JsonKind::kArray) || request.messages->elements() == 0)
        refuse("messages", "must be a list with at least one message");
    for (const JsonView message : request.messages->items()) check_message(message);
    if (const auto tools = reader.find("tools")) {
        if (!tools->is(JsonKind::kArray)) refuse("tools", "must be a list");
        if (tools->elements() > 0) request.tools = tools;
    }
}

ApiRequest read_request(ApiKind kind, JsonView json, const infer::SamplingOptions& defaults,
                        MemoryLease& lease) {
    if (!json.is(JsonKind::kObject)) throw Refusal{{400, "the body must be a JSON object", ""}};
    const FieldReader reader(json);
    ApiRequest request;
    request.kind = kind;
    request.model = reader.text("model");
    if (kind == ApiKind::kChat) {
        read_messages(reader, request);
        request.tokens_max = reader.integer("max_completion_tokens", 1, kTokensMax);
        if (!request.tokens_max) request.tokens_max = reader.integer("max_tokens", 1, kTokensMax);
        reader.require_default("logprobs", is_false);
        reader.require_default("top_logprobs", is_number<0>);
        reader.require_default("response_format", is_text_format);
        reader.require_default("tool_choice", is_auto);
    } else {
        constexpr int64_t kTokensOfProtocol = 16;  // where a completion is silent
        read_prompt(reader, request, lease);
        request.tokens_max =
            reader.integer("max_tokens", 1, kTokensMax).value_or(kTokensOfProtocol);
        request.echo = reader.flag("echo");
        if (request.echo && !request.prompt_tokens.empty())
            refuse("echo", "is for a prompt that is text, and this one is token ids");
        reader.require_default("logprobs", is_false);
        reader.require_default("suffix", is_empty_text);
        reader.require_default("best_of", is_number<1>);
    }
    reader.require_default("logit_bias", is_never);
    read_sampling(reader, defaults, request);
    read_stops(reader, request);
    request.choices = static_cast<int>(reader.integer("n", 1, kChoicesMax).value_or(1));
    request.stream = reader.flag("stream");
    if (const auto options = reader.find("stream_options")) {
        if (!options->is(JsonKind::kObject)) refuse("stream_options", "must be an object");
        request.stream_usage = FieldReader(*options).flag("include_usage");
    }
    return request;
}

}  // namespace

ApiError short_of_memory() {
    return {503,
            "the requests of others take all the memory that requests may take: try again later",
            ""};
}

std::variant<ApiRequest, ApiError> parse_api_request(ApiKind kind, std::string body,
                                                     const infer::SamplingOptions& defaults,
                                                     MemoryLease& lease) {
    auto read = JsonDocument::read(std::move(body), lease);
    if (const JsonFault* fault = std::get_if<JsonFault>(&read))
        return fault->is_short_of_memory ? short_of_memory()
                                         : ApiError{400, "the body is no JSON: " + fault->why, ""};
    const auto document =
        std::make_shared<const JsonDocument>(std::get<JsonDocument>(std::move(read)));
    try {
        ApiRequest request = read_request(kind, document->root(), defaults, lease);
        request.document = document;
        return request;
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
