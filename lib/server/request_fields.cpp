#include "server/request_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
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

// Returns true for {"type": "text"}.
bool is_text_format(JsonView value) {
    if (!value.is(JsonKind::kObject) || value.elements() != 1) return false;
    const auto type = value.find("type");
    return type && type->is(JsonKind::kText) && type->text() == "text";
}

// Returns true for ["text"].
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

// The names of the fields that are read into a request, separated by blanks.
constexpr std::string_view kRead =
    " model max_tokens temperature top_p top_k min_p presence_penalty repetition_penalty seed "
    "frequency_penalty logit_bias stop n stream stream_options stop_token_ids ignore_eos "
    "min_tokens ";
constexpr std::string_view kReadOfChat =
    " messages tools tool_choice max_completion_tokens chat_template_kwargs reasoning_effort "
    "documents add_generation_prompt continue_final_message ";
constexpr std::string_view kReadOfCompletion = " prompt echo ";

// A field that has no effect here. It is accepted if its value has the right type.
struct Passed {
    std::string_view name, kind;
    Check is_kind;
};
constexpr Passed kPassed[] = {{"user", "a string", is_text},
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
                              {"priority", "an integer", is_integer}};

// A field that this server does not support. It is accepted if IS_DEFAULT holds for its value, or
// if the value is null or empty.
struct NotDone {
    std::string_view name;
    Check is_default;
    std::string_view instead = "remove it";
};
constexpr NotDone kNotDone[] = {
    {"logprobs", is_flag<false>},
    {"top_logprobs", is_number<0>},
    {"response_format", is_text_format, "remove it, and ask for JSON in a message"},
    {"suffix", is_empty_text},
    {"best_of", is_number<1>},
    {"functions", is_never, "send tools"},
    {"function_call", is_auto_or_none, "send tools and tool_choice"},
    {"modalities", is_text_alone},
    {"verbosity", is_medium},
    {"grammar", is_empty_text},
    {"use_beam_search", is_flag<false>},
    {"length_penalty", is_number<1>},
    {"typical_p", is_number<1>},
    {"include_stop_str_in_output", is_flag<false>},
    {"skip_special_tokens", is_flag<true>},
    {"spaces_between_special_tokens", is_flag<true>},
    {"add_special_tokens", is_never, "the chat template or the tokenizer decides it"},
    {"return_token_ids", is_flag<false>},
    {"return_tokens_as_token_ids", is_flag<false>},
    {"chat_template", is_never, "the model's own template is used"},
    {"enable_thinking", is_never, "send it in chat_template_kwargs"},
    {"thinking", is_never, "send it in chat_template_kwargs"},
    {"repeat_penalty", is_number<1>, "send repetition_penalty"},
    {"n_predict", is_number<-1>, "send max_tokens"},
    {"num_predict", is_number<-1>, "send max_tokens"},
    {"max_new_tokens", is_never, "send max_tokens"},
    {"options", is_never, "send its fields directly in the request"},
    {"format", is_empty_text},
};
// Further fields that this server does not support. They have no default value, so they are
// accepted only if they are null or empty.
constexpr std::string_view kNeverDone =
    " prompt_logprobs audio prediction web_search_options structured_outputs guided_json "
    "guided_regex guided_choice guided_grammar guided_decoding_backend json_schema bad_words "
    "allowed_token_ids truncate_prompt_tokens mm_processor_kwargs kv_transfer_params keep_alive ";

bool is_empty(JsonView value) {
    const bool is_list = value.is(JsonKind::kObject) || value.is(JsonKind::kArray);
    return value.is(JsonKind::kNull) || (is_list && value.elements() == 0);
}

bool has(std::string_view names, std::string_view field) {
    return field.find(' ') == field.npos && names.find(fmt::format(" {} ", field)) != names.npos;
}

bool is_read(std::string_view field, bool is_chat) {
    return has(kRead, field) || has(is_chat ? kReadOfChat : kReadOfCompletion, field);
}

std::optional<std::string> fault_of_unknown(std::string_view field, bool is_chat) {
    if (is_read(field, !is_chat))
        return fmt::format(
            "is a field of a {} request, but this is a {} request: send the request to {}, or "
            "remove the field",
            is_chat ? "completion" : "chat", is_chat ? "chat" : "completion",
            is_chat ? "/v1/completions" : "/v1/chat/completions");
    std::vector<std::string> known;
    for (const std::string_view names : {kRead, is_chat ? kReadOfChat : kReadOfCompletion})
        for (std::string& name : split(trim(names), ' ')) known.push_back(std::move(name));
    for (const Passed& passed : kPassed) known.emplace_back(passed.name);
    const auto meant = nearest(field, known);
    return "is an unknown field: " +
           (meant ? fmt::format("did you mean `{}`?", *meant) : std::string("remove it"));
}

std::optional<std::string> fault_of(std::string_view field, JsonView value, bool is_chat) {
    if (is_read(field, is_chat)) return std::nullopt;
    const auto* const passed = std::ranges::find(kPassed, field, &Passed::name);
    if (passed != std::end(kPassed)) {
        if (value.is(JsonKind::kNull) || passed->is_kind(value)) return std::nullopt;
        return fmt::format("must be {}", passed->kind);
    }
    const auto* not_done = std::ranges::find(kNotDone, field, &NotDone::name);
    constexpr NotDone kNever{"", is_never};
    if (has(kNeverDone, field)) not_done = &kNever;
    if (not_done == std::end(kNotDone)) return fault_of_unknown(field, is_chat);
    if (is_empty(value) || not_done->is_default(value)) return std::nullopt;
    return fmt::format("is not supported by this server; {}", not_done->instead);
}

}  // namespace

std::optional<FieldFault> fault_of_fields(JsonView request, bool is_chat) {
    constexpr size_t kShown = 80;
    std::optional<FieldFault> fault;
    request.for_each_field([&](std::string_view name, JsonView value) {
        if (fault) return;
        if (auto why = fault_of(name, value, is_chat))
            fault = FieldFault{printable(name.substr(0, kShown)), std::move(*why)};
    });
    return fault;
}

}  // namespace dslaunch::server
