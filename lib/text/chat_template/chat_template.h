// A model's chat template: a conversation's messages -> the text that the model was trained on, as
// transformers' apply_chat_template() renders it. Immutable: several threads may render at once.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/run/rendered_chat.h"
#include "text/chat_template/values/value.h"

namespace dslaunch::text {

// Variables of a template, by name. Values must not belong to another rendering's meter.
using TemplateVariables = std::vector<std::pair<std::string, jinja::Value>>;

// The arguments of apply_chat_template(). REQUIRES: messages is a list of dicts, tools and
// documents none or lists.
struct ChatInput {
    jinja::Value messages;
    jinja::Value tools = jinja::Value::none();
    jinja::Value documents = jinja::Value::none();
    bool add_generation_prompt = false;
    // The text ends at the end of the last message's content, so that a model goes on with it.
    bool continue_final_message = false;
    // Arguments of calls that came as JSON texts are objects wherever the template takes objects,
    // as vLLM does for clients; else only where it takes no texts.
    bool prefers_objects = false;
    TemplateVariables more;  // the template's own, as enable_thinking
};

struct TemplateOptions {
    jinja::Limits limits;
    // The time of strftime_now(); none: the local time of the rendering.
    std::optional<std::tm> now;
};

class ChatTemplate {
  public:
    // Parses SOURCE. NAME stands in messages. SPECIAL_TOKENS are variables too, as bos_token.
    // Throws Error kInput with the line for a mistake, or for parts of Jinja2 that are not here.
    [[nodiscard]] static ChatTemplate parse(std::string_view source, std::string name,
                                            TemplateVariables special_tokens = {});

    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    // Renders the template with VARIABLES and nothing else. Throws Error kInput with the line if
    // the template refuses the values or passes a limit.
    [[nodiscard]] RenderedChat render(const TemplateVariables& variables,
                                      const TemplateOptions& options = {}) const;
    // REQUIRES: an object.
    [[nodiscard]] RenderedChat render(const nlohmann::ordered_json& variables,
                                      const TemplateOptions& options = {}) const;

    // Does what apply_chat_template() does: with the special tokens, without the keys of messages
    // whose value is none, and with a message's reasoning under each name that templates read.
    // Messages in a form that the template does not read get the one that it reads
    // (message_forms.h). Throws Error kInput.
    [[nodiscard]] RenderedChat apply(const ChatInput& input,
                                     const TemplateOptions& options = {}) const;

    // Returns true if a `{% generation %}` stands in the template.
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

// Returns VALUE as a template's value. Throws Error kInput if text is not UTF-8, or it is too deep.
[[nodiscard]] jinja::Value template_value(const nlohmann::ordered_json& value);

}  // namespace dslaunch::text
