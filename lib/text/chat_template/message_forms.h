// The forms of messages that a chat template reads, found by rendering small conversations with it.
// Clients send one form, but templates read contents as strings or as parts, and the arguments of
// tool calls as strings or as objects. Pure.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template/values/values.h"

namespace dslaunch::text {

// The forms of a message's content that the template reads.
struct ContentForms {
    bool takes_text = true;
    bool takes_parts = true;  // [{"type": "text", "text": …}…]
};

// The content of a message that calls tools and has no text.
enum class BareContent { kAbsent, kNull, kEmpty };

// The result of rendering tool calls: the template refuses them, its text leaves them out, or its
// text contains them.
enum class CallsBecome { kRefused, kLeftOut, kWritten };

// The forms that one template reads.
struct MessageForms {
    ContentForms system, user, assistant, tool;
    // The result of rendering a message with calls, for each BareContent. If this is not set,
    // in_form() does not change the content of a message with calls.
    std::optional<std::array<CallsBecome, 3>> bare_calls;
    bool takes_argument_text = true;  // arguments of tool calls as a JSON string
    bool takes_argument_objects = true;
    bool shows_arguments = false;  // the text shows them in at least one form
    bool knows_developer = true;   // the role `developer`
};

// Returns the text that a template renders from MESSAGES and TOOLS, or nothing if it refuses them.
using ProbeRendering = std::function<std::optional<std::string>(const jinja::Value& messages,
                                                                const jinja::Value& tools)>;

// Returns the forms that the template with the text SOURCE reads. Finds them by rendering test
// messages with RENDER. If the template prints a content neither as a string nor as parts, the
// result allows both forms, so that in_form() does not change it.
[[nodiscard]] MessageForms find_message_forms(std::string_view source,
                                              const ProbeRendering& render);

// Returns MESSAGE in a form that FORMS allows; a message in such a form does not change. Parts are
// joined to one string, or a string becomes a part. The arguments of calls become objects or JSON
// strings. If a message has calls and no text, its content becomes absent, null or empty, so that
// the template writes the calls. An empty list of calls is removed, and an answer without content
// gets an empty content. The role `developer` becomes `system`. Throws Fault if the template
// requires an object, but the arguments are not a JSON object. Also throws Fault for a message with
// calls and no text, if the template refuses the message's content and writes the calls with no
// other content.
[[nodiscard]] jinja::Value in_form(const jinja::Value& message, const MessageForms& forms);

}  // namespace dslaunch::text
