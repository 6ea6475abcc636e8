#include "tokens/chat/chat_line.h"

#include "tokens/chat/chat_messages.h"
#include "tokens/template/values/compare.h"
#include "tokens/template/values/json_text.h"

#include "base/check.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::tokens {
namespace {

using jinja::Kind;
using jinja::Value;

class RowReader {
  public:
    explicit RowReader(const Value& row) : row_(row) {}

    ChatSample run() {
        if (!row_.is(Kind::kDict)) throw RowFault("the line holds no JSON object");
        read_format();
        read_extras();
        const bool is_text = sample_.format == ChatFormat::kText;
        const bool is_preference = sample_.format == ChatFormat::kPreference;
        if (!is_text) require_answer(sample_.messages, is_preference ? "chosen" : "the row");
        if (is_preference) {
            require_answer(sample_.rejected, "rejected");
            require_words(sample_.messages, "chosen");
            require_words(sample_.rejected, "rejected");
        }
        return std::move(sample_);
    }

  private:
    [[nodiscard]] const Value* find(std::string_view key) const {
        DSL_CHECK(std::ranges::count(kChatKeys, key) == 1, "{} is no key of a row", key);
        const Value* value = jinja::find_key(row_.dict(), key);
        return value == nullptr || value->is(Kind::kNone) ? nullptr : value;
    }
    [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }

    [[nodiscard]] const std::string& text(const std::string& key) const {
        const Value* value = find(key);
        if (value == nullptr || !value->is(Kind::kText)) throw RowFault(key + ": a text is due");
        return value->text();
    }

    void read_format() {
        if (has("chosen") && has("rejected")) return read_preference();
        if (has("messages")) return read_messages(ChatFormat::kMessages, "messages");
        if (has("conversations")) return read_messages(ChatFormat::kConversations, "conversations");
        if (has("instruction") && has("output")) return read_instruction();
        if (has("prompt") && has("completion")) return read_completion();
        if (has("query") && has("response"))
            return read_pair(ChatFormat::kQuery, text("query"), text("response"));
        if (has("text")) return read_text();
        refuse_keys();
    }

    [[noreturn]] void refuse_keys() const {
        constexpr size_t kShownKeysMax = 8;
        std::vector<std::string> keys;
        for (const auto& [key, value] : row_.dict().entries)
            if (keys.size() < kShownKeysMax) keys.push_back(printable(key.text().substr(0, 40)));
        throw RowFault(fmt::format(
            "the row has {}, and none of text; messages; conversations; instruction and output; "
            "prompt and completion; query and response; chosen and rejected",
            keys.empty() ? "no keys" : "the keys " + join(keys, ", ")));
    }

    void read_text() {
        sample_.format = ChatFormat::kText;
        sample_.text = text("text");
        sample_.is_plain = true;
        if (sample_.text.empty()) throw RowFault("text: the text is empty");
    }

    void read_messages(ChatFormat format, const std::string& key) {
        sample_.format = format;
        const Value* system = find("system");
        const Value& held = *find(key);
        sample_.messages = messages_of(held, key);
        const bool is_apart = format == ChatFormat::kConversations && system != nullptr &&
                              system->is(Kind::kText) && !system->text().empty();
        if (is_apart && role_of(sample_.messages.front()) != "system")
            sample_.messages.insert(sample_.messages.begin(), message_of("system", system->text()));
    }

    void read_pair(ChatFormat format, const std::string& prompt, const std::string& answer) {
        sample_.format = format;
        sample_.is_plain = true;
        sample_.messages = {message_of("user", prompt), message_of("assistant", answer)};
        sample_.prompt_messages = 1;
    }

    [[nodiscard]] std::string whole_instruction() {
        sample_.instruction = text("instruction");
        if (has("input")) sample_.input = text("input");
        const std::string between =
            sample_.input.empty() || sample_.instruction.empty() ? "" : "\n";
        return sample_.instruction + between + sample_.input;
    }

    void read_instruction() {
        const std::string asked = whole_instruction();
        read_pair(ChatFormat::kInstruction, asked, text("output"));
        if (has("system") && !text("system").empty()) {
            sample_.messages.insert(sample_.messages.begin(), message_of("system", text("system")));
            sample_.prompt_messages = 2;
        }
    }

    // Messages of a list, or one message of ROLE of a text.
    [[nodiscard]] jinja::Values messages_or_text(const std::string& key, std::string_view role) {
        const Value& value = *find(key);
        if (value.is(Kind::kText)) return {message_of(role, value.text())};
        return messages_of(value, key);
    }

    void read_completion() {
        sample_.format = ChatFormat::kCompletion;
        const bool is_text = find("prompt")->is(Kind::kText);
        if (is_text != find("completion")->is(Kind::kText))
            throw RowFault("prompt and completion: both are texts, or both lists of messages");
        sample_.is_plain = is_text;
        sample_.messages = messages_or_text("prompt", "user");
        sample_.prompt_messages = sample_.messages.size();
        const jinja::Values rest = messages_or_text("completion", "assistant");
        sample_.messages.insert(sample_.messages.end(), rest.begin(), rest.end());
    }

    void read_preference() {
        sample_.format = ChatFormat::kPreference;
        const bool is_text = find("chosen")->is(Kind::kText);
        if (is_text != find("rejected")->is(Kind::kText))
            throw RowFault("chosen and rejected: both are texts, or both lists of messages");
        sample_.is_plain = is_text;
        if (is_text) return read_preferred_texts();
        sample_.messages = messages_of(*find("chosen"), "chosen");
        sample_.rejected = messages_of(*find("rejected"), "rejected");
        const size_t shared = shared_messages();
        sample_.prompt_messages = shared;
        const jinja::Values prompt = asked();
        // Both may hold the prompt already.
        const bool is_held =
            shared >= prompt.size() && is_same(prompt, sample_.messages, prompt.size());
        if (!is_held && (shared == 0 || !asks_by_text())) put_before(prompt);
        put_system();
    }

    void read_preferred_texts() {
        const std::string& chosen = text("chosen");
        const std::string& rejected = text("rejected");
        jinja::Values prompt = asked();
        size_t shared = 0;
        sample_.is_plain = asks_by_text();
        if (prompt.empty()) {
            shared = shared_bytes(chosen, rejected);
            prompt = {message_of("user", chosen.substr(0, shared))};
        }
        sample_.messages = {message_of("assistant", chosen.substr(shared))};
        sample_.rejected = {message_of("assistant", rejected.substr(shared))};
        put_before(prompt);
        put_system();
    }

    // The prompt that a row of preferences has beside its answers; none: it has none.
    [[nodiscard]] jinja::Values asked() {
        if (has("prompt")) return messages_or_text("prompt", "user");
        if (has("question")) return {message_of("user", text("question"))};
        if (has("instruction")) return {message_of("user", whole_instruction())};
        return {};
    }
    [[nodiscard]] bool asks_by_text() const {
        return !has("prompt") || find("prompt")->is(Kind::kText);
    }

    void put_before(const jinja::Values& prompt) {
        for (jinja::Values* side : {&sample_.messages, &sample_.rejected})
            side->insert(side->begin(), prompt.begin(), prompt.end());
        sample_.prompt_messages += prompt.size();
    }

    void put_system() {
        if (!has("system") || text("system").empty()) return;
        if (role_of(sample_.messages.front()) == "system") return;
        put_before({message_of("system", text("system"))});
    }

    // Where two texts part, a blank before and no character cut in two.
    static size_t shared_bytes(const std::string& a, const std::string& b) {
        size_t shared = 0;
        while (shared < std::min(a.size(), b.size()) && a[shared] == b[shared]) ++shared;
        const auto cuts = [&](const std::string& text) {
            return shared < text.size() &&
                   (static_cast<unsigned char>(text[shared]) & 0xC0) == 0x80;
        };
        while (shared > 0 && (cuts(a) || cuts(b))) --shared;
        if (shared > 0 && a[shared - 1] == ' ') --shared;
        return shared;
    }

    [[nodiscard]] static bool is_same(const jinja::Values& a, const jinja::Values& b,
                                      size_t count) {
        jinja::Meter meter{jinja::Limits{}};
        for (size_t i = 0; i < count; ++i)
            if (!jinja::are_equal(meter, a[i], b[i])) return false;
        return true;
    }

    // The messages at the beginning that both sides have; the last of each side is its answer.
    [[nodiscard]] size_t shared_messages() const {
        const size_t most = std::min(sample_.messages.size(), sample_.rejected.size()) - 1;
        size_t shared = 0;
        while (shared < most && is_same({sample_.messages[shared]}, {sample_.rejected[shared]}, 1))
            ++shared;
        return shared;
    }

    void require_answer(const jinja::Values& messages, const std::string& where) const {
        for (size_t i = sample_.prompt_messages; i < messages.size(); ++i)
            if (role_of(messages[i]) == "assistant") return;
        throw RowFault(where + ": no message is the assistant's, so there is nothing to learn");
    }

    // An answer of a pair says something, or calls a tool.
    void require_words(const jinja::Values& messages, const std::string& where) const {
        for (size_t i = sample_.prompt_messages; i < messages.size(); ++i) {
            if (role_of(messages[i]) != "assistant") continue;
            const Value* calls = jinja::find_key(messages[i].dict(), "tool_calls");
            const bool has_calls =
                calls != nullptr && calls->is(Kind::kList) && !calls->items().empty();
            if (has_calls || !trim(content_text(messages[i])).empty()) return;
        }
        throw RowFault(where + ": the answer is empty");
    }

    // A list, or a text that holds one as JSON, as some sets of data have it.
    [[nodiscard]] Value list_of(const std::string& key) const {
        const Value* value = find(key);
        if (value == nullptr) return Value::none();
        Value held = *value;
        if (held.is(Kind::kText)) {
            try {
                held = jinja::value_of_json(held.text());
            } catch (const jinja::Fault& fault) {
                throw RowFault(fmt::format("{}: {}", key, fault.what()));
            }
        }
        if (held.is(Kind::kNone)) return held;
        if (!held.is(Kind::kList)) throw RowFault(key + ": a list is due");
        for (const Value& one : held.items())
            if (!one.is(Kind::kDict)) throw RowFault(key + ": a list of objects is due");
        return held;
    }

    void read_extras() {
        sample_.tools = list_of("tools");
        sample_.documents = list_of("documents");
        const Value* more = find("chat_template_kwargs");
        if (more == nullptr) return;
        if (!more->is(Kind::kDict)) throw RowFault("chat_template_kwargs: an object is due");
        for (const auto& [name, value] : more->dict().entries)
            sample_.more.emplace_back(name.text(), value);
    }

    const Value& row_;
    ChatSample sample_;
};

}  // namespace

const char* chat_format_name(ChatFormat format) {
    switch (format) {
        case ChatFormat::kPreference:
            return "preference";
        case ChatFormat::kMessages:
            return "messages";
        case ChatFormat::kConversations:
            return "conversations";
        case ChatFormat::kInstruction:
            return "instruction";
        case ChatFormat::kCompletion:
            return "completion";
        case ChatFormat::kQuery:
            return "query";
        case ChatFormat::kText:
            return "text";
    }
    return "";
}

ChatLine parse_chat_line(std::string_view line) {
    ChatLine result;
    try {
        if (line.size() > kChatLineBytesMax)
            throw RowFault(
                fmt::format("a line of {} bytes, {} at most", line.size(), kChatLineBytesMax));
        if (trim(line).empty()) throw RowFault("the line is empty");
        const Value row = jinja::value_of_json(line);
        result.sample = RowReader(row).run();
    } catch (const RowFault& fault) {
        result.reason = fault.what();
    } catch (const jinja::Fault& fault) {
        result.reason = printable(fault.what());
    }
    return result;
}

}  // namespace dslaunch::tokens
