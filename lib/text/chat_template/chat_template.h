// A model's chat template. It converts the messages of a conversation to the text that the model
// was trained on, as transformers' apply_chat_template() renders it. Immutable: several threads may
// render at once.
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
#include "text/chat_template/values/values.h"

namespace dslaunch::text {

// Variables of a template, by name. A value must not come from another rendering, because the meter
// of the other rendering counts the value.
using TemplateVariables = std::vector<std::pair<std::string, jinja::Value>>;

// The arguments of apply_chat_template(). REQUIRES: messages is a list of dicts; tools and
// documents are none or lists.
struct ChatInput {
    jinja::Value messages;
    jinja::Value tools = jinja::Value::none();
    jinja::Value documents = jinja::Value::none();
    bool add_generation_prompt = false;
    // If true, the text ends at the end of the last message's content, so that a model continues
    // it.
    bool continue_final_message = false;
    // Clients send the arguments of calls as JSON strings. If true, the strings become objects
    // whenever the template accepts objects, as in vLLM. If false, they become objects only when
    // the template accepts no strings.
    bool prefers_objects = false;
    TemplateVariables more;  // further variables, such as enable_thinking
};

// The limits and the time of one rendering.
struct TemplateOptions {
    jinja::Limits limits;
    // The time for strftime_now(). If it is not set, the local time of the rendering is used.
    std::optional<std::tm> now;
};

// A parsed template, with the forms of messages that it reads.
class ChatTemplate {
  public:
    // Parses SOURCE. NAME appears in messages. SPECIAL_TOKENS are variables too, such as bos_token.
    // Throws Error{kInput} with the line if there is a mistake, or a part of Jinja2 that is not
    // supported.
    [[nodiscard]] static ChatTemplate parse(std::string_view source, std::string name,
                                            TemplateVariables special_tokens = {});

    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;
    ~ChatTemplate();

    // Renders the template with VARIABLES and nothing else. Throws Error{kInput} with the line if
    // the template refuses the values or exceeds a limit.
    [[nodiscard]] RenderedChat render(const TemplateVariables& variables,
                                      const TemplateOptions& options = {}) const;
    // REQUIRES: VARIABLES is an object.
    [[nodiscard]] RenderedChat render(const nlohmann::ordered_json& variables,
                                      const TemplateOptions& options = {}) const;

    // Does what apply_chat_template() does: adds the special tokens, removes the keys of messages
    // whose value is none, and stores a message's reasoning under each name that templates read.
    // Messages in a form that the template does not read are converted to one that it reads
    // (message_forms.h). Throws Error{kInput}.
    [[nodiscard]] RenderedChat apply(const ChatInput& input,
                                     const TemplateOptions& options = {}) const;

    // Returns true if the template contains `{% generation %}`.
    [[nodiscard]] bool marks_answers() const;
    // Returns true if the template uses the variable NAME, such as "tools".
    [[nodiscard]] bool mentions(std::string_view name) const;
    [[nodiscard]] const std::string& name() const;

  private:
    struct Parts;
    explicit ChatTemplate(std::unique_ptr<Parts> parts);
    void find_forms();
    std::unique_ptr<Parts> parts_;
};

// Returns VALUE as a value for templates. Throws Error{kInput} if a string is not UTF-8, or if
// VALUE is nested too deeply.
[[nodiscard]] jinja::Value template_value(const nlohmann::ordered_json& value);

}  // namespace dslaunch::text
