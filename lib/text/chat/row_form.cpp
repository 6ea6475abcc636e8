#include "text/chat/row_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/text.h"
#include "base/text/rendering_names.h"
#include "text/chat/chat_messages.h"
#include "text/chat/row_columns.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/members.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

using jinja::Value;
using jinja::ValueKind;

// The names of the columns that hold a better and a worse answer.
struct AnswerColumns {
    std::string_view better, worse;
};
constexpr std::array<AnswerColumns, 3> kPairColumns = {
    {{"chosen", "rejected"},
     {"chosen_response", "rejected_response"},
     {"preferred_output", "non_preferred_output"}}};
constexpr std::array<std::string_view, 2> kSystemColumns = {"system", "system_prompt"};

jinja::Values of_role(const Value& value, std::string_view role, const std::string& where) {
    if (value.is(ValueKind::kText)) return {message_of(role, value.text())};
    if (value.is(ValueKind::kDict)) return messages_of(jinja::plain_list({value}), where);
    if (!value.is(ValueKind::kList))
        throw RowFault(where + ": expected a string or a list of messages");
    return messages_of(value, where);
}

void put_before(jinja::Values& messages, const jinja::Values& earlier) {
    messages.insert(messages.begin(), earlier.begin(), earlier.end());
}

bool is_same(const jinja::Values& a, const jinja::Values& b, size_t count) {
    jinja::Meter meter{jinja::Limits{}};
    for (size_t i = 0; i < count; ++i)
        if (!jinja::are_equal(meter, a[i], b[i])) return false;
    return true;
}

// Returns the length of the longest common prefix of two strings, without a blank at its end and
// without splitting a character.
size_t shared_bytes(const std::string& a, const std::string& b) {
    size_t shared = 0;
    while (shared < std::min(a.size(), b.size()) && a[shared] == b[shared]) ++shared;
    const auto cuts = [&](const std::string& text) {
        return shared < text.size() && (static_cast<unsigned char>(text[shared]) & 0xC0) == 0x80;
    };
    while (shared > 0 && (cuts(a) || cuts(b))) --shared;
    if (shared > 0 && a[shared - 1] == ' ') --shared;
    return shared;
}

class RowReader {
  public:
    explicit RowReader(const Value& row) : row_(row), columns_(row) {}

    ParsedRow run() {
        if (!row_.is(ValueKind::kDict)) throw RowFault("the line is not a JSON object");
        read_format();
        const bool is_text = sample_.format == ChatFormat::kText;
        const bool is_preference = sample_.format == ChatFormat::kPreference;
        if (!is_text) {
            put_system();
            read_extras();
            require_answer(sample_.messages, is_preference ? better_ : "the row");
            if (!is_preference) note_empty_answer();
        }
        if (is_preference) {
            require_answer(sample_.rejected, worse_);
            require_words(sample_.messages, better_);
            require_words(sample_.rejected, worse_);
        }
        ParsedRow line;
        line.unread = columns_.unread(sample_);
        line.sample = std::move(sample_);
        return line;
    }

  private:
    void read_format() {
        for (const auto& [better, worse] : kPairColumns)
            if (columns_.has(better) && columns_.has(worse)) {
                better_ = better;
                worse_ = worse;
                return read_preference();
            }
        const std::string_view conversation = conversation_column();
        const bool is_asked = !columns_.present(kQuestionColumns).empty();
        const bool is_answered = !columns_.present(kAnswerColumns).empty();
        // The answer that the row already has is the better one.
        const bool has_worse = columns_.has_more_than_nothing("rejected_response") &&
                               !columns_.has("chosen_response") && !columns_.has("chosen");
        if (has_worse && !conversation.empty()) return read_worse_than_last(conversation);
        if (!conversation.empty()) return read_messages(conversation);
        if (is_asked && is_answered) {
            read_answer();
            if (has_worse) read_worse();
            return;
        }
        if (columns_.has("text")) return read_text();
        refuse_keys();
    }

    // Returns the column that holds a conversation, or "" if there is none.
    [[nodiscard]] std::string_view conversation_column() const {
        std::string_view found;
        for (const std::string_view name : columns_.present(kConversationColumns)) {
            if (name == "conversation" && !columns_.find(name)->is(ValueKind::kList)) continue;
            if (columns_.has_more_than_nothing(name)) return name;
            if (found.empty()) found = name;
        }
        return columns_.present(kAnswerColumns).empty() ? found : "";
    }

    // Returns true if a value in column NAME might make the row complete.
    [[nodiscard]] bool may_be_needed(std::string_view name) const {
        const auto is_one_of = [&](std::span<const std::string_view> names) {
            return std::ranges::find(names, name) != names.end();
        };
        const bool is_of_pair = std::ranges::any_of(kPairColumns, [&](const auto& pair) {
            return (name == pair.better && columns_.has(pair.worse)) ||
                   (name == pair.worse && columns_.has(pair.better));
        });
        return is_of_pair || name == "text" || is_one_of(kConversationColumns) ||
               (is_one_of(kAnswerColumns) && !columns_.present(kQuestionColumns).empty()) ||
               (is_one_of(kQuestionColumns) && !columns_.present(kAnswerColumns).empty());
    }

    [[noreturn]] void refuse_keys() const {
        for (const auto& [key, value] : row_.dict().entries)
            if (value.is(ValueKind::kNone) && may_be_needed(key.text()))
                throw RowFault(fmt::format("{} is null", key.text()));
        constexpr size_t kShownKeysMax = 8;
        std::vector<std::string> keys;
        for (const auto& [key, value] : row_.dict().entries)
            if (keys.size() < kShownKeysMax) keys.push_back(printable(key.text().substr(0, 40)));
        throw RowFault(fmt::format("the row has {}, but needs one of: {}{}",
                                   keys.empty() ? "no keys" : "the keys " + join(keys, ", "),
                                   kReadColumns, meant_text()));
    }

    // Returns a hint about the meaning of the keys in a row without known columns, or "" if there
    // is none.
    [[nodiscard]] std::string meant_text() const {
        for (const auto& [key, value] : row_.dict().entries) {
            const std::string name = printable(key.text());
            const std::string known = lower(trim(key.text()));
            if (known == "input_ids")
                return "; dslaunch makes the tokens itself: give the text that they were made from";
            if (known != key.text() && std::ranges::count(row_columns(), known) > 0)
                return fmt::format("; did you mean `{}`? Write the keys in lower case", known);
            if (value.is(ValueKind::kList) && !value.items().empty() &&
                value.items().front().is(ValueKind::kDict))
                return fmt::format(
                    "; if `{0}` is the list of rows: jq -c '.\"{0}\"[]' FILE > rows.jsonl", name);
            if (value.is(ValueKind::kDict) && (jinja::member(value, "messages") != nullptr ||
                                               jinja::member(value, "prompt") != nullptr))
                return fmt::format(
                    "; if the field `{0}` contains the row, take it out: jq -c '.\"{0}\"' FILE > "
                    "rows.jsonl",
                    name);
        }
        return "";
    }

    void read_text() {
        sample_.format = ChatFormat::kText;
        sample_.text = columns_.text("text");
        sample_.is_plain = true;
        if (sample_.text.empty()) throw RowFault("text: the text is empty");
    }

    void read_messages(std::string_view column) {
        sample_.format = column == "messages" ? ChatFormat::kMessages : ChatFormat::kConversations;
        sample_.messages = messages_of(columns_.read(column), std::string(column));
    }

    // Chooses one of the columns NAMES to read, and returns its name. If several columns have a
    // value, chooses the column whose text contains the texts of the others: a row may have a final
    // answer in one column, and the same answer with its reasoning in another.
    [[nodiscard]] std::string_view one_of(std::span<const std::string_view> names, bool is_answer) {
        std::vector<std::string_view> held(names.begin(), names.end());
        std::erase_if(held, [&](auto name) { return !columns_.has_more_than_nothing(name); });
        if (held.empty()) {
            const std::vector<std::string_view> empty = columns_.present(names);
            return empty.empty() ? "" : empty.front();
        }
        for (const std::string_view name : held) {
            const auto is_held = [&](std::string_view other) {
                const Value &whole = *columns_.find(name), &part = *columns_.find(other);
                if (other == name) return true;
                if (!whole.is(ValueKind::kText) || !part.is(ValueKind::kText)) return false;
                return is_answer ? whole.text().find(trim(part.text())) != std::string::npos
                                 : trim(whole.text()) == trim(part.text());
            };
            if (!std::ranges::all_of(held, is_held)) continue;
            for (const std::string_view other : held) columns_.count_as_read(other);
            return name;
        }
        throw RowFault(
            fmt::format("{} and {}: their values differ, but only one of them can be the {}; "
                        "remove the other one",
                        held[0], held[1], is_answer ? "answer" : "question"));
    }

    // Returns the columns that may hold the question. Leaves out `input` if the row has an
    // instruction. Also leaves out a prompt that ends with ANSWER, because such a prompt is the
    // whole rendered row.
    [[nodiscard]] std::vector<std::string_view> question_columns(const Value* answer) const {
        std::vector<std::string_view> names = columns_.present(kQuestionColumns);
        const bool is_instruction = columns_.has("instruction");
        std::erase_if(names, [&](std::string_view name) {
            const Value& value = *columns_.find(name);
            const bool is_rendered =
                name != "instruction" && is_instruction && value.is(ValueKind::kText) &&
                answer != nullptr && answer->is(ValueKind::kText) &&
                !trim(answer->text()).empty() && trim(value.text()).ends_with(trim(answer->text()));
            return is_rendered || (name == "input" && is_instruction);
        });
        return names;
    }

    // Returns the messages before the row's answer: the earlier turns, then the question.
    [[nodiscard]] jinja::Values question(const Value* answer) {
        const std::string_view name = one_of(question_columns(answer), false);
        jinja::Values messages;
        if (name == "instruction") {
            messages = {message_of("user", whole_instruction())};
        } else if (!name.empty()) {
            messages = of_role(columns_.read(name), "user", std::string(name));
        }
        is_asked_by_text_ = name.empty() || columns_.find(name)->is(ValueKind::kText);
        is_continued_ = is_asked_by_text_ && (name.empty() || name == "prompt");
        is_instruction_ = name == "instruction";
        if (columns_.has_more_than_nothing("history")) {
            put_before(messages, history_of(columns_.read("history"), "history"));
            is_asked_by_text_ = is_continued_ = false;
        }
        return messages;
    }

    [[nodiscard]] std::string whole_instruction() {
        sample_.instruction = columns_.text("instruction");
        const bool has_input = columns_.has_more_than_nothing("input");
        if (has_input || columns_.has("context"))
            sample_.input = columns_.text(has_input ? "input" : "context");
        const std::string between =
            sample_.input.empty() || sample_.instruction.empty() ? "" : "\n";
        return sample_.instruction + between + sample_.input;
    }

    void read_answer() {
        const std::string_view name = one_of(kAnswerColumns, true);
        const Value& answer = columns_.read(name);
        sample_.messages = question(&answer);
        const bool is_text = answer.is(ValueKind::kText);
        if (!is_text && is_asked_by_text_) {
            if (name != "completion") throw RowFault(fmt::format("{}: expected a string", name));
            throw RowFault(
                "prompt and completion: both must be strings, or both must be lists of messages");
        }
        is_continued_ = is_continued_ && is_text && name == "completion";
        sample_.format = is_instruction_        ? ChatFormat::kInstruction
                         : name == "completion" ? ChatFormat::kCompletion
                                                : ChatFormat::kQuery;
        sample_.is_plain = is_asked_by_text_;
        sample_.is_continued = sample_.is_plain && is_continued_;
        // The answers of the earlier turns in `history` are learned, as in LLaMA-Factory and
        // ms-swift. If the prompt is a list of messages, the answers in it are not learned.
        sample_.prompt_messages =
            columns_.has_more_than_nothing("history") ? 0 : sample_.messages.size();
        const jinja::Values rest = of_role(answer, "assistant", std::string(name));
        sample_.messages.insert(sample_.messages.end(), rest.begin(), rest.end());
    }

    // Makes the sample a pair: the answer that the row already has is the better one, and
    // `rejected_response` is the worse one.
    void read_worse() {
        better_ = "the answer";
        worse_ = "rejected_response";
        sample_.format = ChatFormat::kPreference;
        sample_.is_continued = false;
        sample_.prompt_messages = sample_.messages.size() - 1;
        sample_.rejected = sample_.messages;
        sample_.rejected.back() = message_of("assistant", columns_.text(worse_));
    }

    void read_worse_than_last(std::string_view column) {
        read_messages(column);
        if (role_of(sample_.messages.back()) != "assistant")
            throw RowFault(
                fmt::format("{}: the last message is not the assistant's, so there is no better "
                            "answer to compare rejected_response with",
                            column));
        read_worse();
    }

    void read_preference() {
        sample_.format = ChatFormat::kPreference;
        const Value& better = columns_.read(better_);
        const Value& worse = columns_.read(worse_);
        if (better.is(ValueKind::kText) != worse.is(ValueKind::kText))
            throw RowFault(
                fmt::format("{} and {}: both must be strings, or both must be lists of messages",
                            better_, worse_));
        jinja::Values prompt = asked();
        sample_.is_plain = is_asked_by_text_;
        sample_.is_continued = is_continued_ && better_ == "chosen" && better.is(ValueKind::kText);
        if (better.is(ValueKind::kText)) {
            size_t shared = 0;
            if (prompt.empty()) {
                shared = shared_bytes(better.text(), worse.text());
                prompt = {message_of("user", better.text().substr(0, shared))};
            }
            sample_.messages = {message_of("assistant", better.text().substr(shared))};
            sample_.rejected = {message_of("assistant", worse.text().substr(shared))};
            return put_prompt(prompt);
        }
        sample_.is_plain = false;
        sample_.messages = of_role(better, "assistant", better_);
        sample_.rejected = of_role(worse, "assistant", worse_);
        const size_t shared = shared_messages();
        sample_.prompt_messages = shared;
        // Adds no prompt if both answers already begin with it.
        const bool is_held =
            shared >= prompt.size() && is_same(prompt, sample_.messages, prompt.size());
        if (is_held) return;
        if (shared == 0 || !is_asked_by_text_) return put_prompt(prompt);
        require_said(prompt);
    }

    // Returns the prompt that a preference row has outside its answers. Returns no messages if
    // there is no such prompt.
    [[nodiscard]] jinja::Values asked() {
        const std::string_view column = conversation_column();
        if (!column.empty()) {
            jinja::Values messages = messages_of(*columns_.find(column), std::string(column));
            if (role_of(messages.back()) != "assistant") {
                columns_.count_as_read(column);
                is_asked_by_text_ = is_continued_ = false;
                return messages;
            }
        }
        const Value* input = columns_.find("input");
        if (input == nullptr || !input->is(ValueKind::kDict)) return question(nullptr);
        // OpenAI's form: one object holds the prompt and its tools.
        columns_.count_as_read("input");
        const Value* messages = jinja::member(*input, "messages");
        if (messages == nullptr) throw RowFault("input.messages: expected a list of messages");
        if (const Value* tools = jinja::member(*input, "tools"); tools != nullptr)
            sample_.tools = list_of(*tools, "input.tools");
        is_asked_by_text_ = is_continued_ = false;
        return messages_of(*messages, "input.messages");
    }

    void put_prompt(const jinja::Values& prompt) {
        put_before(sample_.messages, prompt);
        put_before(sample_.rejected, prompt);
        sample_.prompt_messages += prompt.size();
    }

    // Checks that one of the messages before the answers contains the text of PROMPT.
    void require_said(const jinja::Values& prompt) const {
        const std::string asked(trim(content_text(prompt.back())));
        for (size_t i = 0; i < sample_.prompt_messages; ++i)
            if (content_text(sample_.messages[i]).find(asked) != std::string::npos) return;
        throw RowFault(
            fmt::format("{} and {} begin with the same messages, but these messages do not contain "
                        "the prompt; remove the prompt or the messages at the beginning",
                        better_, worse_));
    }

    void put_system() {
        for (const std::string_view name : kSystemColumns) {
            if (!columns_.has_more_than_nothing(name)) continue;
            const std::string& text = columns_.text(name);
            sample_.is_continued = false;
            const std::string& role = role_of(sample_.messages.front());
            if (role != "system" && role != "developer") {
                put_before(sample_.messages, {message_of("system", text)});
                if (!sample_.rejected.empty())
                    put_before(sample_.rejected, {message_of("system", text)});
                sample_.prompt_messages += sample_.prompt_messages > 0 ? 1 : 0;
            } else if (content_text(sample_.messages.front()).find(trim(text)) ==
                       std::string::npos) {
                throw RowFault(
                    fmt::format("{}: the messages begin with another system message; remove the "
                                "column or that message",
                                name));
            }
        }
    }

    // Returns how many messages the chosen and the rejected conversation share at the beginning.
    // The last message of a conversation does not count.
    [[nodiscard]] size_t shared_messages() const {
        const size_t most = std::min(sample_.messages.size(), sample_.rejected.size()) - 1;
        size_t shared = 0;
        while (shared < most && is_same({sample_.messages[shared]}, {sample_.rejected[shared]}, 1))
            ++shared;
        return shared;
    }

    void require_answer(const jinja::Values& messages, const std::string& where) const {
        bool is_answered = false;
        for (size_t i = sample_.prompt_messages; i < messages.size(); ++i) {
            if (role_of(messages[i]) != "assistant") continue;
            if (is_learned(messages[i])) return;
            is_answered = true;
        }
        throw RowFault(
            where + (is_answered
                         ? ": all answers are marked as not learned, so there is nothing to learn"
                         : ": no message is the assistant's, so there is "
                           "nothing to learn"));
    }

    [[nodiscard]] static bool says_something(const Value& message) {
        for (const char* more : {"tool_calls", "function_call", "reasoning_content", "thinking"})
            if (const Value* value = jinja::member(message, more);
                value != nullptr && !value->is(ValueKind::kNone) &&
                !(value->is(ValueKind::kText) && trim(value->text()).empty()) &&
                !(value->is(ValueKind::kList) && value->items().empty()))
                return true;
        return !trim(content_text(message)).empty();
    }

    void note_empty_answer() {
        for (size_t i = sample_.prompt_messages; i < sample_.messages.size(); ++i)
            if (role_of(sample_.messages[i]) == "assistant" && is_learned(sample_.messages[i]) &&
                !says_something(sample_.messages[i]))
                sample_.has_empty_answer = true;
    }

    // Checks that an answer of a pair has text or calls a tool.
    void require_words(const jinja::Values& messages, const std::string& where) const {
        for (size_t i = sample_.prompt_messages; i < messages.size(); ++i) {
            if (role_of(messages[i]) != "assistant") continue;
            const Value* calls = jinja::member(messages[i], "tool_calls");
            const bool has_calls =
                calls != nullptr && calls->is(ValueKind::kList) && !calls->items().empty();
            if (has_calls || !trim(content_text(messages[i])).empty()) return;
        }
        throw RowFault(where + ": the answer is empty");
    }

    // Returns VALUE as a list. In some data sets, VALUE is a string with the list as JSON. Returns
    // none for an empty list.
    [[nodiscard]] static Value list_of(const Value& value, const std::string& where) {
        Value held = value;
        if (held.is(ValueKind::kText)) {
            if (trim(held.text()).empty()) return Value::none();
            try {
                held = jinja::value_of_json(held.text());
            } catch (const jinja::Fault& fault) {
                throw RowFault(fmt::format("{}: {}", where, fault.what()));
            }
        }
        if (held.is(ValueKind::kNone)) return held;
        if (!held.is(ValueKind::kList)) throw RowFault(where + ": expected a list");
        for (const Value& one : held.items())
            if (!one.is(ValueKind::kDict)) throw RowFault(where + ": expected a list of objects");
        return held.items().empty() ? Value::none() : held;
    }

    void read_extras() {
        if (columns_.has("tools")) sample_.tools = list_of(columns_.read("tools"), "tools");
        if (columns_.has("functions") && sample_.tools.is(ValueKind::kNone)) read_functions();
        if (columns_.has("documents"))
            sample_.documents = list_of(columns_.read("documents"), "documents");
        if (!sample_.tools.is(ValueKind::kNone) || !sample_.documents.is(ValueKind::kNone))
            sample_.is_continued = false;
        if (!columns_.has("chat_template_kwargs")) return;
        const Value& more = columns_.read("chat_template_kwargs");
        if (!more.is(ValueKind::kDict)) throw RowFault("chat_template_kwargs: expected an object");
        for (const auto& [name, value] : more.dict().entries) {
            if (std::ranges::find(kRenderingNames, name.text()) != kRenderingNames.end())
                throw RowFault("chat_template_kwargs: `" + name.text() +
                               "` is set by dslaunch, so it is not allowed here");
            sample_.more.emplace_back(name.text(), value);
        }
    }

    // Reads `functions`, OpenAI's earlier form of tools.
    void read_functions() {
        const Value functions = list_of(columns_.read("functions"), "functions");
        if (functions.is(ValueKind::kNone)) return;
        jinja::Values tools;
        for (const Value& function : functions.items())
            tools.push_back(
                jinja::plain_dict({{jinja::plain_text("type"), jinja::plain_text("function")},
                                   {jinja::plain_text("function"), function}}));
        sample_.tools = jinja::plain_list(std::move(tools));
    }

    const Value& row_;
    RowColumns columns_;
    ChatSample sample_;
    std::string better_, worse_;  // the names of a pair's two answers
    bool is_asked_by_text_ = true, is_instruction_ = false;
    bool is_continued_ = true;  // the answer continues the prompt, or there is no question
};

}  // namespace

ParsedRow parse_row(std::string_view line) {
    ParsedRow result;
    try {
        if (line.size() > kRowBytesMax)
            throw RowFault(fmt::format("the line has {} bytes, but at most {} are supported",
                                       line.size(), kRowBytesMax));
        if (trim(line).empty()) throw RowFault("the line is empty");
        const Value row = jinja::value_of_json(line);
        result = RowReader(row).run();
    } catch (const RowFault& fault) {
        result.reason = fault.what();
    } catch (const jinja::Fault& fault) {
        const size_t text_end = valid_utf8_prefix(line);
        result.reason =
            text_end == line.size()
                ? printable(fault.what())
                : fmt::format(
                      "invalid JSON at byte {}: it is not UTF-8; convert a Latin-1 file with: "
                      "iconv -f LATIN1 -t UTF-8 FILE > NEW (NEW needs the same ending as FILE)",
                      text_end + 1);
    }
    return result;
}

}  // namespace dslaunch::text
