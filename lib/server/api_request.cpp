#include "server/api_request.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/text.h"
#include "base/text/json.h"
#include "base/text/rendering_names.h"
#include "server/request_fields.h"

namespace dslaunch::server {

namespace {

constexpr int64_t kPromptsMax = 256;
constexpr int64_t kChoicesMax = 16;
constexpr int64_t kStopsMax = 16;
constexpr size_t kStopBytesMax = 1000;
constexpr int64_t kTokensMax = int64_t{1} << 30;

// The error of a refused request, thrown and caught inside this file only.
struct Refusal {
    ApiError error;
};

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
    throw Refusal{{400, fmt::format("{} {}", field, why), field}};
}

// Charges LEASE for BYTES that the request keeps in memory.
void charge(MemoryLease& lease, size_t bytes) {
    if (!lease.grow(static_cast<int64_t>(bytes))) throw Refusal{short_of_memory()};
}

class FieldReader {
  public:
    // REQUIRES: an object.
    explicit FieldReader(JsonView json) : json_(json) {}

    // Returns the value of FIELD; nothing if it is absent or null.
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
            refuse(field, fmt::format("is {}, but must be between {} and {}", number, least, most));
        return number;
    }
    [[nodiscard]] std::optional<int64_t> integer(const char* field, int64_t least,
                                                 int64_t most) const {
        const auto value = find(field);
        if (!value) return std::nullopt;
        // Numbers that do not fit 64 bits, and numbers with a decimal point, are doubles.
        const double number = value->is_number() ? value->real() : NAN;
        if (number != std::floor(number)) refuse(field, "must be an integer");
        if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)))
            refuse(field, fmt::format("is {}, but must be between {} and {}", number, least, most));
        if (value->is(JsonKind::kInteger)) return value->integer();
        // INT64_MAX as a double is 2^63, so 2^63 passes the check above although it does not fit
        // int64_t.
        return number < 0x1p63 ? static_cast<int64_t>(number) : INT64_MAX;
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
    // Returns the value of FIELD, which must be an array; nothing if it is absent or empty.
    [[nodiscard]] std::optional<JsonView> list(const char* field) const {
        const auto value = find(field);
        if (!value) return std::nullopt;
        if (!value->is(JsonKind::kArray)) refuse(field, "must be a list");
        return value->elements() > 0 ? value : std::nullopt;
    }

  private:
    JsonView json_;
};

int32_t token_of(JsonView token, const char* field) {
    if (!token.is(JsonKind::kInteger) || token.integer() < 0 || token.integer() > INT32_MAX)
        refuse(field, "contains a value that is not a token id");
    return static_cast<int32_t>(token.integer());
}

// Reads {"token": bias…}, and adds the biases to a copy of the server's token rules, for this
// request only.
void read_biases(const FieldReader& reader, ApiRequest& request) {
    constexpr double kBiasMax = 100;
    constexpr int64_t kBiasesMax = 1024;
    const auto biases = reader.find("logit_bias");
    if (!biases) return;
    if (!biases->is(JsonKind::kObject)) refuse("logit_bias", "must be an object");
    if (biases->elements() > kBiasesMax)
        refuse("logit_bias", fmt::format("has more than {} tokens", kBiasesMax));
    if (biases->elements() == 0) return;
    auto rules = request.sampling.rules
                     ? std::make_shared<decoder::TokenRules>(*request.sampling.rules)
                     : std::make_shared<decoder::TokenRules>();
    biases->for_each_field([&](std::string_view key, JsonView bias) {
        const std::optional<int64_t> token = parse_int(key);
        if (!token || *token < 0 || *token > INT32_MAX)
            refuse("logit_bias", "contains a value that is not a token id");
        if (!bias.is_number() || !(std::abs(bias.real()) <= kBiasMax))
            refuse("logit_bias", "must contain only numbers between -100 and 100");
        rules->biases.push_back({{static_cast<int32_t>(*token)}, static_cast<float>(bias.real())});
    });
    request.sampling.rules = std::move(rules);
}

void read_sampling(const FieldReader& reader, const decoder::SamplingOptions& defaults,
                   ApiRequest& request) {
    decoder::SamplingOptions& sampling = request.sampling;
    sampling = defaults;
    sampling.temperature = reader.number("temperature", defaults.temperature, 0, 100);
    // With top_p = 0, only the likeliest token may be chosen.
    sampling.top_p = std::max(reader.number("top_p", defaults.top_p, 0, 1), 1e-9);
    sampling.min_p = reader.number("min_p", defaults.min_p, 0, 1);
    // Other servers use -1 for all tokens.
    sampling.top_k =
        std::max<int64_t>(reader.integer("top_k", -1, kTokensMax).value_or(defaults.top_k), 0);
    sampling.repetition_penalty =
        reader.number("repetition_penalty", defaults.repetition_penalty, 1e-3, 1e3);
    if (const auto seed = reader.integer("seed", INT64_MIN, INT64_MAX)) {
        sampling.seed = static_cast<uint64_t>(*seed);
        request.seed_given = true;
    }
    sampling.presence_penalty = reader.number("presence_penalty", 0, -2, 2);
    sampling.frequency_penalty = reader.number("frequency_penalty", 0, -2, 2);
    if (const auto least = reader.integer("min_tokens", 0, kTokensMax)) {
        sampling.tokens_min = *least;
        sampling.length_min = 0;
    }
    read_biases(reader, request);
    request.ignores_end = reader.flag("ignore_eos");
    const auto ends = reader.list("stop_token_ids");
    if (!ends) return;
    if (ends->elements() > kStopsMax)
        refuse("stop_token_ids", fmt::format("has more than {} tokens", kStopsMax));
    for (const JsonView end : ends->items())
        request.more_ends.push_back(token_of(end, "stop_token_ids"));
}

void read_stops(const FieldReader& reader, ApiRequest& request) {
    const auto stop = reader.find("stop");
    if (!stop) return;
    request.stops.emplace();
    const auto add = [&](JsonView text) {
        if (!text.is(JsonKind::kText)) refuse("stop", "must be a string or a list of strings");
        const std::string_view word = text.text();
        if (word.empty() || word.size() > kStopBytesMax)
            refuse("stop", fmt::format("must have 1 to {} bytes", kStopBytesMax));
        request.stops->emplace_back(word);
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
    for (const JsonView token : list.items()) tokens.push_back(token_of(token, "prompt"));
    request.prompt_tokens.push_back(std::move(tokens));
}

void add_text(JsonView text, ApiRequest& request, MemoryLease& lease) {
    charge(lease, text.text().size());
    request.prompts.emplace_back(text.text());
}

// Reads a prompt: a string, a list of strings, a list of tokens, or a list of lists of tokens.
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

// Checks one part of a message. Accepts "refusal" parts, because clients send the model's earlier
// answers back.
void check_part(JsonView part) {
    const auto type = part.is(JsonKind::kObject) ? part.find("type") : std::nullopt;
    const std::string_view name = type && type->is(JsonKind::kText) ? type->text() : "";
    const bool is_text = name == "text" || name == "input_text" || name == "output_text";
    if (!is_text && name != "refusal")
        refuse("messages", "has a part that is not text: this server supports only text");
    const auto text = part.find(is_text ? "text" : "refusal");
    if (!text || !text->is(JsonKind::kText))
        refuse("messages", fmt::format("has a part of the type `{}` without a text", name));
}

// Checks {"function": {"name": text, "arguments": text or object}}.
void check_calls(JsonView calls) {
    if (!calls.is(JsonKind::kArray)) refuse("messages", "has tool_calls that are not a list");
    for (const JsonView call : calls.items()) {
        const auto function = call.is(JsonKind::kObject) ? call.find("function") : std::nullopt;
        const bool is_object = function && function->is(JsonKind::kObject);
        const auto name = is_object ? function->find("name") : std::nullopt;
        if (!name || !name->is(JsonKind::kText))
            refuse("messages", "has a tool call without a function that has a name");
        const auto arguments = function->find("arguments");
        if (arguments && !arguments->is(JsonKind::kText) && !arguments->is(JsonKind::kObject) &&
            !arguments->is(JsonKind::kNull))
            refuse("messages",
                   "has a tool call whose arguments are neither JSON text nor an object");
    }
}

void check_message(JsonView message) {
    if (!message.is(JsonKind::kObject)) refuse("messages", "must be a list of objects");
    const auto role = message.find("role");
    if (!role || !role->is(JsonKind::kText) || role->text().empty())
        refuse("messages", "has a message without a role");
    const FieldReader reader(message);
    if (reader.find("function_call"))
        refuse("messages", "has a function_call, which is not supported: send tool_calls");
    const auto calls = reader.find("tool_calls");
    if (calls) check_calls(*calls);
    const auto content = message.find("content");
    if (!content) {
        if (!calls) refuse("messages", "has a message without content");
        return;
    }
    if (content->is(JsonKind::kArray)) {
        for (const JsonView part : content->items()) check_part(part);
        return;
    }
    if (!content->is(JsonKind::kText) && !content->is(JsonKind::kNull))
        refuse("messages", "has content that is neither a string nor a list of parts");
}

void read_messages(const FieldReader& reader, ApiRequest& request) {
    request.messages = reader.find("messages");
    if (!request.messages) refuse("messages", "is missing");
    if (!request.messages->is(JsonKind::kArray) || request.messages->elements() == 0)
        refuse("messages", "must be a list with at least one message");
    for (const JsonView message : request.messages->items()) check_message(message);
    request.tools = reader.list("tools");
    if (request.tools)
        for (const JsonView tool : request.tools->items())
            if (!tool.is(JsonKind::kObject)) refuse("tools", "must be a list of objects");
    const auto choice = reader.find("tool_choice");
    const std::string_view chosen = choice && choice->is(JsonKind::kText) ? choice->text() : "";
    if (choice && chosen != "auto" && chosen != "none")
        refuse("tool_choice", "is not supported by this server; `auto` and `none` are");
    // With "none", the client wants no call, so the model does not get the tools.
    if (chosen == "none") request.tools.reset();
}

// Reads the template's inputs other than messages and tools.
void read_template_values(const FieldReader& reader, ApiRequest& request) {
    request.documents = reader.list("documents");
    request.template_kwargs = reader.find("chat_template_kwargs");
    if (request.template_kwargs) {
        if (!request.template_kwargs->is(JsonKind::kObject))
            refuse("chat_template_kwargs", "must be an object");
        for (const std::string_view own : kRenderingNames)
            if (request.template_kwargs->find(own))
                refuse("chat_template_kwargs",
                       fmt::format(
                           "sets `{}`, which the server itself passes to the template: remove it",
                           own));
    }
    request.reasoning_effort = reader.text("reasoning_effort");
    request.continues_last = reader.flag("continue_final_message");
    const auto begins = reader.find("add_generation_prompt");
    request.begins_answer = begins ? reader.flag("add_generation_prompt") : !request.continues_last;
    if (request.begins_answer && request.continues_last)
        refuse("continue_final_message",
               "continues the last message, but add_generation_prompt begins a new one: use only "
               "one of them");
}

void read_stream_options(JsonView options, ApiRequest& request) {
    options.for_each_field([](std::string_view key, JsonView /*value*/) {
        if (key != "include_usage" && key != "include_obfuscation" &&
            key != "continuous_usage_stats")
            refuse("stream_options",
                   fmt::format("has the unknown field `{}`", printable(key.substr(0, 80))));
    });
    request.stream_usage = FieldReader(options).flag("include_usage");
    if (FieldReader(options).flag("continuous_usage_stats"))
        refuse("stream_options", "has continuous_usage_stats, which is not supported; remove it");
}

ApiRequest read_request(ApiKind kind, JsonView json, const decoder::SamplingOptions& defaults,
                        MemoryLease& lease) {
    if (!json.is(JsonKind::kObject)) throw Refusal{{400, "the body must be a JSON object", ""}};
    const FieldReader reader(json);
    ApiRequest request;
    request.kind = kind;
    if (const auto fault = fault_of_fields(json, kind == ApiKind::kChat))
        refuse(fault->field, fault->why);
    request.model = reader.text("model");
    if (kind == ApiKind::kChat) {
        read_messages(reader, request);
        read_template_values(reader, request);
        request.tokens_max = reader.integer("max_completion_tokens", 1, kTokensMax);
        if (!request.tokens_max) request.tokens_max = reader.integer("max_tokens", 1, kTokensMax);
    } else {
        read_prompt(reader, request, lease);
        request.tokens_max = reader.integer("max_tokens", 1, kTokensMax);
        request.echo = reader.flag("echo");
        if (request.echo && !request.prompt_tokens.empty())
            refuse("echo",
                   "needs a prompt that is text, but the prompt consists of token ids: send text, "
                   "or remove echo");
    }
    read_sampling(reader, defaults, request);
    read_stops(reader, request);
    request.choices = static_cast<int>(reader.integer("n", 1, kChoicesMax).value_or(1));
    request.stream = reader.flag("stream");
    if (const auto options = reader.find("stream_options")) {
        if (!options->is(JsonKind::kObject)) refuse("stream_options", "must be an object");
        read_stream_options(*options, request);
    }
    return request;
}

}  // namespace

ApiError short_of_memory() {
    return {503, "other requests use all the memory that requests may use: try again later", ""};
}

std::variant<ApiRequest, ApiError> parse_api_request(ApiKind kind, std::string body,
                                                     const decoder::SamplingOptions& defaults,
                                                     MemoryLease& lease) {
    auto read = JsonDocument::read(std::move(body), lease);
    if (const JsonFault* fault = std::get_if<JsonFault>(&read))
        return fault->short_of_memory
                   ? short_of_memory()
                   : ApiError{400, "the body is not valid JSON: " + fault->why, ""};
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

}  // namespace dslaunch::server
