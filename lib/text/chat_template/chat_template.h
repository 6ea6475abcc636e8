// A model's chat template: a conversation's messages -> the text that the model was trained on, as
// transformers' apply_chat_template() renders it. Immutable: several threads may render at once.
#pragma once

#include "text/chat_template/values/value.h"

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::text {

// Variables of a template, by name. Values must not belong to another rendering's meter.
using TemplateVariables = std::vector<std::pair<std::string, jinja::Value>>;

struct TextRange {
    size_t begin_bytes = 0;
    size_t end_bytes = 0;
    bool operator==(const TextRange&) const = default;
};

// What a template printed for a message of those that it was given, from 0.
struct MessageRange {
    size_t message = 0;
    TextRange range;
};

struct RenderedChat {
    std::string text;
    // What loops over the messages printed for each of them, where that has a place in the text;
    // inner loops before outer ones. Empty with continue_final_message.
    std::vector<MessageRange> by_message;
    // What the template marks with `{% generation %}` as the assistant's, in the text's order.
    std::vector<TextRange> generated;
    // A mark stands in a macro, a `set` block or a filter: its place in the text is not known, and
    // `generated` is not all.
    bool has_lost_mark = false;
};

// What apply_chat_template() takes. REQUIRES: messages is a list of dicts, tools and documents none
// or lists.
struct ChatInput {
    jinja::Value messages;
    jinja::Value tools = jinja::Value::none();
    jinja::Value documents = jinja::Value::none();
    bool add_generation_prompt = false;
    // The text ends where the last message's content ends, so that a model goes on with it.
    bool continue_final_message = false;
    // Arguments of calls that came as JSON texts are objects wherever the template takes objects,
    // as vLLM has it for what clients send; else only where it takes no texts.
    bool prefers_objects = false;
    TemplateVariables more;  // the template's own, as enable_thinking
};

struct TemplateOptions {
    jinja::Limits limits;
    // What strftime_now() takes for now; none: the local time of the rendering.
    std::optional<std::tm> now;
};

class ChatTemplate {
  public:
    // NAME stands in messages. SPECIAL_TOKENS are variables too, as bos_token. Throws Error kInput
    // with the line for a mistake, or for what Jinja2 has and this has not.
    [[nodiscard]] static ChatTemplate parse(std::string_view source, std::string name,
                                            TemplateVariables special_tokens = {});

    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    // The template with VARIABLES and nothing else. Throws Error kInput with the line: the template
    // refuses the values, or passes a limit.
    [[nodiscard]] RenderedChat render(const TemplateVariables& variables,
                                      const TemplateOptions& options = {}) const;
    // REQUIRES: an object.
    [[nodiscard]] RenderedChat render(const nlohmann::ordered_json& variables,
                                      const TemplateOptions& options = {}) const;
    // The same; by_message is of MESSAGES, the elements of one of VARIABLES.
    [[nodiscard]] RenderedChat render(const TemplateVariables& variables,
                                      const jinja::Values& messages,
                                      const TemplateOptions& options) const;

    // As apply_chat_template(): with the special tokens, without the keys of messages whose value
    // is none, and with a message's reasoning under each name that templates read. Messages that
    // have a form which the template does not read get the one that it reads (message_forms.h).
    // Throws Error kInput.
    [[nodiscard]] RenderedChat apply(const ChatInput& input,
                                     const TemplateOptions& options = {}) const;

    // A `{% generation %}` stands in the template.
    [[nodiscard]] bool marks_answers() const;
    // Returns true if the template names the variable NAME, as "tools".
    [[nodiscard]] bool mentions(std::string_view name) const;
    [[nodiscard]] const std::string& name() const;

  private:
    struct Parts;
    explicit ChatTemplate(std::unique_ptr<Parts> parts);
    void find_forms();
    std::unique_ptr<Parts> parts_;
};

// VALUE as a template's value. Throws Error kInput: text that is no UTF-8, or too deep.
[[nodiscard]] jinja::Value template_value(const nlohmann::ordered_json& value);

}  // namespace dslaunch::text
