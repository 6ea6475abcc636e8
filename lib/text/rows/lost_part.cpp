#include "text/rows/lost_part.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "text/chat/chat_messages.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/members.h"

namespace dslaunch::text {
namespace {

using jinja::Value;
using jinja::ValueKind;

constexpr std::array<std::string_view, 3> kReasoningKeys = {"reasoning_content", "reasoning",
                                                            "thinking"};

bool has_one(const Value& message, std::span<const std::string_view> keys) {
    for (const std::string_view key : keys) {
        const Value* value = jinja::member(message, key);
        if (value != nullptr && jinja::is_true(*value)) return true;
    }
    return false;
}

// Returns the name of TOOL, or "" if it has no name. The name is a member of TOOL's member
// `function`, or of TOOL itself.
std::string name_of(const Value& tool) {
    const Value* function = jinja::member(tool, "function");
    const bool is_inner = function != nullptr && function->is(ValueKind::kDict);
    const std::string* name = jinja::text_member(is_inner ? *function : tool, "name");
    return name != nullptr ? *name : "";
}

class LossFinder {
  public:
    LossFinder(const ChatSample& sample, const ChatTemplate& chat, const jinja::Values& messages)
        : chat_(chat), messages_(messages) {
        whole_.messages = jinja::plain_list(messages);
        whole_.tools = sample.tools;
        whole_.documents = sample.documents;
        whole_.more = sample.more;
    }

    std::string run() {
        constexpr std::array<std::string_view, 1> kCalls = {"tool_calls"};
        if (is_lost(0, kCalls)) return "tool_calls";
        if (!whole_.tools.is(ValueKind::kNone)) {
            ChatInput input = whole_;
            input.tools = Value::none();
            if (is_same(input)) return "tools";
            for (const Value& tool : whole_.tools.items())
                if (text().find(name_of(tool)) == std::string::npos) return "tools";
        }
        if (!whole_.documents.is(ValueKind::kNone)) {
            ChatInput input = whole_;
            input.documents = Value::none();
            if (is_same(input)) return "documents";
        }
        size_t last = messages_.size();
        while (last > 0 && role_of(messages_[last - 1]) != "assistant") --last;
        if (last > 0 && is_lost(last - 1, kReasoningKeys)) return "reasoning";
        return "";
    }

  private:
    // Returns true if messages from FIRST on have one of KEYS, but the text stays the same if KEYS
    // are removed from them.
    [[nodiscard]] bool is_lost(size_t first, std::span<const std::string_view> keys) {
        jinja::Values messages = messages_;
        bool has_keys = false;
        for (size_t i = first; i < messages.size(); ++i) {
            if (!has_one(messages[i], keys)) continue;
            has_keys = true;
            messages[i] = jinja::without_members(messages[i], keys);
        }
        if (!has_keys) return false;
        ChatInput input = whole_;
        input.messages = jinja::plain_list(std::move(messages));
        return is_same(input);
    }

    [[nodiscard]] bool is_same(const ChatInput& input) {
        try {
            return chat_.apply(input).text == text();
        } catch (const Error&) {
            // The template fails without this part, so it does use the part.
            return false;
        }
    }

    [[nodiscard]] const std::string& text() {
        if (text_.empty()) text_ = chat_.apply(whole_).text;
        return text_;
    }

    const ChatTemplate& chat_;
    const jinja::Values& messages_;
    ChatInput whole_;
    std::string text_;
};

}  // namespace

std::string lost_part(const ChatSample& sample, const ChatTemplate& chat, PreferenceSide side) {
    return LossFinder(sample, chat, messages_of_side(sample, side)).run();
}

}  // namespace dslaunch::text
