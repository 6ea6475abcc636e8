// The forms of messages that a chat template reads, found by rendering small conversations with it:
// clients send one protocol, and templates want contents as texts or as parts, and the arguments of
// tool calls as texts or as objects. Pure.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat_template/values/value.h"

namespace dslaunch::text {

struct ContentForms {
    bool takes_text = true;
    bool takes_parts = true;  // [{"type": "text", "text": …}…]
};

// The content of a message that calls tools and says nothing.
enum class BareContent { kAbsent, kNull, kEmpty };

enum class CallsBecome { kRefused, kLeftOut, kWritten };

struct MessageForms {
    ContentForms system, user, assistant, tool;
    // The form that calls get beside each BareContent; nothing: contents stay as they come.
    std::optional<std::array<CallsBecome, 3>> bare_calls;
    bool takes_argument_text = true;  // of tool calls: JSON as a text
    bool takes_argument_objects = true;
    bool shows_arguments = false;  // in one of the two forms
    bool knows_developer = true;   // the role
};

// Returns a template's text of MESSAGES with TOOLS; nothing: it refuses them.
using ProbeRendering = std::function<std::optional<std::string>(const jinja::Value& messages,
                                                                const jinja::Value& tools)>;

// Returns the forms that the template of SOURCE reads. It keeps both forms where the template shows
// neither, so that in_form() changes nothing then.
[[nodiscard]] MessageForms find_message_forms(std::string_view source,
                                              const ProbeRendering& render);

// Returns MESSAGE in a form of FORMS: parts become one text, one after the other, or a text becomes
// a part; the arguments of calls become objects or JSON texts; a content that says nothing beside
// calls becomes one beside which the template writes them; an empty list of calls goes, and an
// answer without a content has an empty one; the role `developer` becomes `system`. A message that
// has such a form already does not change. Throws Fault for arguments that are not a JSON object
// where an object is due, and for calls without a content where the template writes no calls and
// refuses them.
[[nodiscard]] jinja::Value in_form(const jinja::Value& message, const MessageForms& forms);

}  // namespace dslaunch::text
