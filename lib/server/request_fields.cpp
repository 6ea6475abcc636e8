#include "server/request_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace dslaunch::server {

namespace {

using Check = bool (*)(JsonView value);

bool is_text(JsonView value) {
    return value.is(JsonKind::kText);
}

bool is_bool(JsonView value) {
    return value.is(JsonKind::kBool);
}

bool is_object(JsonView value) {
    return value.is(JsonKind::kObject);
}

bool is_integer(JsonView value) {
    return value.is(JsonKind::kInteger);
}

bool is_never(JsonView /*value*/) {
    return false;
}

template <bool kWanted>
bool is_flag(JsonView value) {
    return value.is(JsonKind::kBool) && value.flag() == kWanted;
}

template <int kNumber>
bool is_number(JsonView value) {
    return value.is_number() && value.real() == kNumber;
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

// ["text"]
bool is_text_alone(JsonView value) {
    if (!value.is(JsonKind::kArray) || value.elements() != 1) return false;
    const JsonView first = *value.items().begin();
    return first.is(JsonKind::kText) && first.text() == "text";
}

bool is_auto_or_none(JsonView value) {
    return value.is(JsonKind::kText) && (value.text() == "auto" || value.text() == "none");
}

bool is_medium(JsonView value) {
    return value.is(JsonKind::kText) && value.text() == "medium";
}

// Read where a request is made of them.
constexpr std::array<std::string_view, 18> kRead = {"model",
                                                    "max_tokens",
                                                    "temperature",
                                                    "top_p",
                                                    "top_k",
                                                    "min_p",
                                                    "presence_penalty",
                                                    "repetition_penalty",
                                                    "seed",
                                                    "frequency_penalty",
                                                    "logit_bias",
                                                    "stop",
                                                    "n",
                                                    "stream",
                                                    "stream_options",
                                                    "stop_token_ids",
                                                    "ignore_eos",
                                                    "min_tokens"};
constexpr std::array<std::string_view, 9> kReadOfChat = {"messages",
                                                         "tools",
                                                         "tool_choice",
                                                         "max_completion_tokens",
                                                         "chat_template_kwargs",
                                                         "reasoning_effort",
                                                         "documents",
                                                         "add_generation_prompt",
                                                         "continue_final_message"};
constexpr std::array<std::string_view, 2> kReadOfCompletion = {"prompt", "echo"};

// What says nothing of the text: it is taken if it is of its kind.
struct Passed {
    std::string_view name, kind;
    Check is_kind;
};
constexpr std::array<Passed, 12> kPassed = {{{"user", "a string", is_text},
                                             {"metadata", "an object", is_object},
                                             {"store", "true or false", is_bool},
                                             {"service_tier", "a string", is_text},
                                             {"safety_identifier", "a string", is_text},
                                             {"prompt_cache_key", "a string", is_text},
                                             {"prompt_cache_retention", "a string", is_text},
                                             {"parallel_tool_calls", "true or false", is_bool},
                                             {"request_id", "a string", is_text},
                                             {"cache_salt", "a string", is_text},
                                             {"cache_prompt", "true or false", is_bool},
                                             {"priority", "an integer", is_integer}}};

// What asks for something unless it IS_DEFAULT, null or empty.
struct NotDone {
    std::string_view name;
    Check is_default;
    std::string_view instead = "leave it out";
};
constexpr std::array<NotDone, 45> kNotDone = {{
    {"logprobs", is_flag<false>},
    {"top_logprobs", is_number<0>},
    {"prompt_logprobs", is_never},
    {"response_format", is_text_format},
    {"suffix", is_empty_text},
    {"best_of", is_number<1>},
    {"functions", is_never, "send tools"},
    {"function_call", is_auto_or_none, "send tools and tool_choice"},
    {"modalities", is_text_alone},
    {"audio", is_never},
    {"prediction", is_never},
    {"verbosity", is_medium},
    {"web_search_options", is_never},
    {"structured_outputs", is_never},
    {"guided_json", is_never},
    {"guided_regex", is_never},
    {"guided_choice", is_never},
    {"guided_grammar", is_never},
    {"guided_decoding_backend", is_never},
    {"grammar", is_empty_text},
    {"json_schema", is_never},
    {"use_beam_search", is_flag<false>},
    {"length_penalty", is_number<1>},
    {"typical_p", is_number<1>},
    {"bad_words", is_never},
    {"allowed_token_ids", is_never},
    {"include_stop_str_in_output", is_flag<false>},
    {"skip_special_tokens", is_flag<true>},
    {"spaces_between_special_tokens", is_flag<true>},
    {"add_special_tokens", is_never, "a chat's template and a prompt's tokenizer decide"},
    {"truncate_prompt_tokens", is_never},
    {"return_token_ids", is_flag<false>},
    {"return_tokens_as_token_ids", is_flag<false>},
    {"mm_processor_kwargs", is_never},
    {"kv_transfer_params", is_never},
    {"chat_template", is_never, "the model's own is used"},
    {"enable_thinking", is_never, "send it in chat_template_kwargs"},
    {"thinking", is_never, "send it in chat_template_kwargs"},
    {"repeat_penalty", is_number<1>, "send repetition_penalty"},
    {"n_predict", is_number<-1>, "send max_tokens"},
    {"num_predict", is_number<-1>, "send max_tokens"},
    {"max_new_tokens", is_never, "send max_tokens"},
    {"options", is_never, "send each of its fields by itself"},
    {"format", is_empty_text},
    {"keep_alive", is_never},
}};

bool is_empty(JsonView value) {
    const bool is_list = value.is(JsonKind::kObject) || value.is(JsonKind::kArray);
    return value.is(JsonKind::kNull) || (is_list && value.elements() == 0);
}

bool is_read(std::string_view field, bool is_chat) {
    const auto has = [&](const auto& names) {
        return std::ranges::find(names, field) != names.end();
    };
    return has(kRead) || (is_chat ? has(kReadOfChat) : has(kReadOfCompletion));
}

std::optional<std::string> fault_of_unknown(std::string_view field, bool is_chat) {
    if (is_read(field, !is_chat))
        return fmt::format("is a field of a {}, and this is a {}: leave it out",
                           is_chat ? "completion" : "chat", is_chat ? "chat" : "completion");
    std::vector<std::string> known;
    for (const auto name : kRead) known.emplace_back(name);
    if (is_chat) {
        for (const auto name : kReadOfChat) known.emplace_back(name);
    } else {
        for (const auto name : kReadOfCompletion) known.emplace_back(name);
    }
    for (const Passed& passed : kPassed) known.emplace_back(passed.name);
    const auto meant = nearest(field, known);
    return "is a field that nobody here knows: " +
           (meant ? fmt::format("did you mean `{}`?", *meant) : std::string("leave it out"));
}

std::optional<std::string> fault_of(std::string_view field, JsonView value, bool is_chat) {
    if (is_read(field, is_chat)) return std::nullopt;
    const auto passed = std::ranges::find(kPassed, field, &Passed::name);
    if (passed != kPassed.end()) {
        if (value.is(JsonKind::kNull) || passed->is_kind(value)) return std::nullopt;
        return fmt::format("must be {}", passed->kind);
    }
    const auto not_done = std::ranges::find(kNotDone, field, &NotDone::name);
    if (not_done == kNotDone.end()) return fault_of_unknown(field, is_chat);
    if (is_empty(value) || not_done->is_default(value)) return std::nullopt;
    return fmt::format("is not supported by this server; {}", not_done->instead);
}

}  // namespace

std::optional<FieldFault> fault_of_fields(JsonView request, bool is_chat) {
    constexpr size_t kShown = 80;
    std::string_view name;
    bool is_key = true;
    for (const JsonView field : request.fields()) {
        if (is_key) {
            name = field.text();
        } else if (auto why = fault_of(name, field, is_chat)) {
            return FieldFault{printable(name.substr(0, kShown)), std::move(*why)};
        }
        is_key = !is_key;
    }
    return std::nullopt;
}

}  // namespace dslaunch::server
