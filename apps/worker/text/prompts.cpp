#include "worker/text/prompts.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/rendering_names.h"
#include "base/text/words.h"
#include "base/text_bytes.h"
#include "storage/files/file_kind.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"
#include "text/unicode/code_points.h"

namespace dslaunch::worker {

namespace {

using text::TemplateVariables;
using text::jinja::Value;
using text::jinja::ValueKind;

constexpr std::array<std::string_view, 7> kLineFields = {"prompt",
                                                         "prompt_ids",
                                                         "messages",
                                                         "tools",
                                                         "chat_template_kwargs",
                                                         "documents",
                                                         "continue_final_message"};
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr const char* kLineForms =
    R"({"prompt": text}, {"prompt_ids": [5, 17]} or {"messages": [...]})";
constexpr size_t kKindBytes = size_t{64} << 10;
constexpr size_t kStdinBlockBytes = size_t{64} << 10;
constexpr int64_t kStdinBytesMax = int64_t{64} << 20;

std::vector<int32_t> checked_tokens(const std::vector<int64_t>& ids, const char* where) {
    std::vector<int32_t> tokens;
    for (const int64_t token : ids) {
        if (token < 0 || token > INT32_MAX)
            fail(ExitCode::kInput, "{}: {} is not a token id", where, token);
        tokens.push_back(static_cast<int32_t>(token));
    }
    return tokens;
}

// Returns the tokens of TEXT, as in "5,17,2", "5 17 2" and "[5, 17, 2]".
std::vector<int32_t> tokens_of_option(const std::string& text) {
    std::string_view list = trim(text);
    if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
    std::vector<int64_t> ids;
    constexpr std::string_view kBetween = ", \t\r\n";
    for (size_t begin = list.find_first_not_of(kBetween); begin != std::string_view::npos;) {
        const size_t end = std::min(list.find_first_of(kBetween, begin), list.size());
        const std::string_view word = list.substr(begin, end - begin);
        const auto id = parse_int(word);
        if (!id)
            fail(ExitCode::kUsage,
                 "--prompt-ids: `{}` is not a token id: give numbers, e.g. 5,17,2",
                 printable(word));
        ids.push_back(*id);
        begin = list.find_first_not_of(kBetween, end);
    }
    if (ids.empty())
        fail(ExitCode::kUsage, "--prompt-ids: contains no ids: give some, e.g. 5,17,2");
    return checked_tokens(ids, "--prompt-ids");
}

bool is_message(const Value& value) {
    return value.is(ValueKind::kDict) && text::jinja::find_key(value.dict(), "role") != nullptr;
}

// Returns the messages in TEXT if it is JSON: one message, or a list of them. Returns an empty list
// for any other text. Warns if TEXT looks like messages but is not JSON.
text::jinja::Values messages_in(const std::string& text) {
    const std::string_view begin = trim(text);
    if (!begin.starts_with('[') && !begin.starts_with('{')) return {};
    text::jinja::Values messages;
    try {
        const Value value = text::jinja::value_of_json(text);
        if (is_message(value)) return {value};
        if (!value.is(ValueKind::kList)) return {};
        for (const Value& item : value.items()) {
            if (!is_message(item)) return {};
            messages.push_back(item);
        }
    } catch (const text::jinja::Fault& fault) {
        if (begin.find("\"role\"") != std::string_view::npos ||
            begin.find("'role'") != std::string_view::npos)
            log_warn("generate",
                     "--chat: begins like a list of messages, but is not JSON, so all of it is one "
                     "user's message: {}",
                     printable(fault.what()));
    }
    return messages;
}

// Warns if TEXT is the name of a file. TEXT is the value of OPTION.
void warn_of_file(const char* option, const std::string& text) {
    std::error_code unreadable;
    if (text.empty() || !std::filesystem::is_regular_file(text, unreadable)) return;
    log_warn("generate",
             "{} {}: is taken as the text itself, but a file has this name; to pass the file's "
             "text, write {} \"$(cat {})\"",
             option, printable(text), option, shell_word(text));
}

Prompt chat_prompt(const text::ChatInput& chat, const TextFiles& files) {
    return {files.require_codec().encode(files.chat_text(chat), /*is_rendered=*/true), "", "",
            /*answers=*/!chat.continue_final_message};
}

// Converts KWARGS, which is an object, to template variables. WHERE names KWARGS in messages.
// Throws Error{CODE}.
TemplateVariables variables_of(const Value& kwargs, ExitCode code, const char* where) {
    TemplateVariables variables;
    if (!kwargs.is(ValueKind::kDict)) fail(code, "{}: is not a JSON object", where);
    for (const auto& [name, value] : kwargs.dict().entries) {
        if (std::ranges::find(kRenderingNames, name.text()) != kRenderingNames.end())
            fail(code, "{}: sets `{}`, which dslaunch itself passes to the template: remove it",
                 where, name.text());
        variables.emplace_back(name.text(), value);
    }
    return variables;
}

[[noreturn]] void fail_without_prompt() {
    fail(ExitCode::kUsage,
         "there is no prompt: give --prompt TEXT, --chat TEXT or --file FILE, or a text on stdin; "
         "with --prompt '' the model begins by itself");
}

// Returns a message for a file at PATH that is not lines of JSON: its actual kind, and advice. LINE
// is the file's first line.
std::string other_kind_text(std::string_view line, const std::string& path,
                            const std::string& model) {
    std::string begin(kKindBytes, '\0');
    std::ifstream in(path, std::ios::binary);
    in.read(begin.data(), std::ssize(begin));
    begin.resize(static_cast<size_t>(in.gcount()));
    const storage::FileKind kind = storage::file_kind(std::as_bytes(std::span(begin)));
    // A text of a few words has no recognizable kind, so file_kind() alone does not decide.
    const bool is_text =
        text::valid_utf8_prefix(line) == line.size() && line.find('\0') == std::string_view::npos;
    if (!is_text && kind == storage::FileKind::kOther) return "not UTF-8 text";
    if (kind == storage::FileKind::kNoDownload) return download_fault(begin);
    if (kind != storage::FileKind::kText && kind != storage::FileKind::kOther)
        return storage::file_kind_name(kind);
    const std::string name = shell_word(path);
    if (line.starts_with('[') || line.starts_with('{'))
        return fmt::format(
            "JSON in another form; convert it to lines with: jq -c '{}' {} > lines.jsonl",
            line.starts_with('[') ? ".[]" : ".", name);
    return fmt::format(
        "a text; to make a prompt of each line, run: jq -cR '{{prompt: .}}' {0} > lines.jsonl; to "
        "continue the text, run: dslaunch generate {1} < {0}",
        name, shell_word(model));
}

// Refuses the file that ARGUMENTS name if LINE, its first line, is not a JSON object.
void require_json_lines(std::string_view line, const PromptArguments& arguments,
                        const std::string& model) {
    const std::string& path = arguments.file;
    try {
        if (text::jinja::value_of_json(line).is(ValueKind::kDict)) return;
    } catch (const text::jinja::Fault& fault) {
        if (trim(line).starts_with("{'"))
            fail(ExitCode::kInput, "{} {}: line 1: {}", arguments.file_option, printable(path),
                 printable(fault.what()));
        // The error below reports every other kind of first line.
    }
    fail(ExitCode::kInput,
         "{} {}: its first line is not a JSON object, but each line must be one: {}. The file is "
         "{}",
         arguments.file_option, printable(path), kLineForms,
         other_kind_text(trim(line), path, model));
}

// Reads the fields of one line of a file, which must be a JSON object.
class LineReader {
  public:
    explicit LineReader(const Value& line) : line_(line) {
        if (!line.is(ValueKind::kDict)) fail(ExitCode::kInput, "is not a JSON object");
        int kinds = 0;
        for (const char* kind : {"prompt", "prompt_ids", "messages"}) kinds += has(kind);
        if (kinds != 1)
            fail(ExitCode::kInput,
                 "must have exactly one of the fields `prompt`, `prompt_ids`, `messages`");
        for (const auto& [key, value] : line.dict().entries) {
            const std::string& name = key.text();
            if (std::ranges::find(kLineFields, name) == kLineFields.end())
                fail(ExitCode::kInput, "has the unknown field `{}`{}", printable(name),
                     meant(name));
            const bool is_of_chat = name != "prompt" && name != "prompt_ids" && name != "messages";
            if (is_of_chat && !has("messages"))
                fail(ExitCode::kInput, "has `{}`, which can be used only with `messages`", name);
        }
    }

    [[nodiscard]] bool has(std::string_view key) const {
        return text::jinja::find_key(line_.dict(), key) != nullptr;
    }
    // Returns None if KEY does not exist.
    [[nodiscard]] Value get(std::string_view key) const {
        const Value* value = text::jinja::find_key(line_.dict(), key);
        return value == nullptr ? Value::none() : *value;
    }
    [[nodiscard]] Value get(std::string_view key, ValueKind kind) const {
        Value value = get(key);
        if (!value.is(kind) && has(key))
            fail(ExitCode::kInput, "{}: the value of the field has the wrong type", key);
        return value;
    }
    [[nodiscard]] std::vector<int64_t> integers(std::string_view key) const {
        std::vector<int64_t> numbers;
        for (const Value& number : get(key, ValueKind::kList).items()) {
            if (!number.is(ValueKind::kInt))
                fail(ExitCode::kInput, "{}: must contain only integers", key);
            numbers.push_back(number.integral());
        }
        return numbers;
    }

  private:
    [[nodiscard]] static std::string meant(const std::string& name) {
        const std::vector<std::string> known(kLineFields.begin(), kLineFields.end());
        const auto near = nearest(name, known);
        return near ? fmt::format(": did you mean `{}`?", *near) : ": remove it";
    }

    const Value& line_;
};

bool ends_with_answer(const Value& messages) {
    if (messages.items().empty() || !messages.items().back().is(ValueKind::kDict)) return false;
    const Value* role = text::jinja::find_key(messages.items().back().dict(), "role");
    return role != nullptr && role->is(ValueKind::kText) && role->text() == "assistant";
}

// Returns the prompt in LINE. Throws Error{kInput}.
Prompt parse_line(const Value& line, const TextFiles& files, const TemplateVariables& more) {
    const LineReader reader(line);
    if (reader.has("prompt"))
        return {files.require_codec().encode(reader.get("prompt", ValueKind::kText).text(), false),
                "", "", false};
    if (reader.has("prompt_ids"))
        return {checked_tokens(reader.integers("prompt_ids"), "prompt_ids"), "", "", false};
    text::ChatInput chat;
    chat.messages = reader.get("messages", ValueKind::kList);
    const auto list = [&](const char* key) {
        return reader.get(key).is(ValueKind::kNone) ? Value::none()
                                                    : reader.get(key, ValueKind::kList);
    };
    chat.tools = list("tools");
    chat.documents = list("documents");
    if (!reader.get("chat_template_kwargs").is(ValueKind::kNone))
        chat.more = variables_of(reader.get("chat_template_kwargs"), ExitCode::kInput,
                                 "chat_template_kwargs");
    for (const auto& one : more)
        if (std::ranges::find(chat.more, one.first, &TemplateVariables::value_type::first) ==
            chat.more.end())
            chat.more.push_back(one);
    const Value continues = reader.get("continue_final_message");
    if (!continues.is(ValueKind::kNone) && !continues.is(ValueKind::kBool))
        fail(ExitCode::kInput, "continue_final_message: the value of the field has the wrong type");
    chat.continue_final_message = continues.is(ValueKind::kBool) && continues.integral() != 0;
    chat.add_generation_prompt = !chat.continue_final_message;
    Prompt prompt = chat_prompt(chat, files);
    prompt.follows_answer = prompt.answers && ends_with_answer(chat.messages);
    return prompt;
}

}  // namespace

TemplateVariables template_variables_of(const std::string& text, const char* where) {
    if (text.empty()) return {};
    try {
        return variables_of(text::jinja::value_of_json(text), ExitCode::kUsage, where);
    } catch (const text::jinja::Fault& fault) {
        fail(ExitCode::kUsage, "{}: {}", where, printable(fault.what()));
    }
}

std::string text_of_stdin() {
    std::string text;
    if (::isatty(STDIN_FILENO) == 1) fail_without_prompt();
    std::vector<std::byte> block(kStdinBlockBytes);
    for (;;) {
        const ssize_t count = read_full(STDIN_FILENO, block);
        if (count < 0) fail(ExitCode::kInput, "stdin: {}", errno_text(static_cast<int>(-count)));
        if (count == 0) break;
        text += text_in(std::span<const std::byte>(block).first(static_cast<size_t>(count)));
        if (std::ssize(text) > kStdinBytesMax)
            fail(ExitCode::kInput, "stdin: the text is longer than {}, which no model supports",
                 to_text(Bytes{kStdinBytesMax}));
    }
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (text.empty()) fail_without_prompt();
    return text;
}

Prompt prompt_of(const PromptArguments& arguments, const TextFiles& files) {
    const int given = (arguments.text.empty() ? 0 : 1) + (arguments.ids ? 1 : 0) +
                      (arguments.chat.empty() ? 0 : 1);
    if (given > 1)
        fail(ExitCode::kUsage, "only one of --prompt, --prompt-ids and --chat can be used");
    if (!arguments.system.empty() && arguments.chat.empty())
        fail(ExitCode::kUsage, "--system can be used only with --chat");
    if (!arguments.template_kwargs.empty() && arguments.chat.empty())
        fail(ExitCode::kUsage, "--chat-template-kwargs can be used only with --chat or --file");
    std::error_code unreadable;
    if (arguments.text.size() > 1 && arguments.text.front() == '@' &&
        std::filesystem::is_regular_file(arguments.text.substr(1), unreadable))
        fail(ExitCode::kUsage,
             "--prompt {}: expected the text itself, not a file's name; to pass the file's text, "
             "write --prompt \"$(cat {})\"",
             printable(arguments.text), shell_word(arguments.text.substr(1)));
    if (arguments.ids) return {tokens_of_option(*arguments.ids), "", ""};
    if (!arguments.chat.empty()) {
        const auto message = [](const char* role, const std::string& content) {
            const auto text = [](const std::string& plain) {
                return text::jinja::new_text(nullptr, plain);
            };
            return text::jinja::new_dict(
                nullptr, {{text("role"), text(role)}, {text("content"), text(content)}});
        };
        warn_of_file("--system", arguments.system);
        warn_of_file("--chat", arguments.chat);
        text::jinja::Values messages = messages_in(arguments.chat);
        if (messages.empty()) messages.push_back(message("user", arguments.chat));
        if (!arguments.system.empty())
            messages.insert(messages.begin(), message("system", arguments.system));
        text::ChatInput chat;
        chat.messages = text::jinja::new_list(nullptr, std::move(messages));
        chat.add_generation_prompt = true;
        chat.more = template_variables_of(arguments.template_kwargs, "--chat-template-kwargs");
        return chat_prompt(chat, files);
    }
    if (arguments.text.empty() && files.first_token())
        return {{*files.first_token()}, "", "", false};
    const std::string& text = arguments.text;
    return {files.require_codec().encode(text.empty() ? "\n" : text, false), text, ""};
}

Prompt prompt_of_line(std::string_view line, const TextFiles& files,
                      const TemplateVariables& more) {
    try {
        Prompt prompt = parse_line(text::jinja::value_of_json(line), files, more);
        if (prompt.tokens.empty() && files.first_token())
            prompt.tokens.push_back(*files.first_token());
        if (prompt.tokens.empty()) fail(ExitCode::kInput, "the prompt has no tokens");
        return prompt;
    } catch (const Error& error) {
        return {{}, "", error.what(), false};
    } catch (const text::jinja::Fault& fault) {
        return {{}, "", printable(fault.what()), false};
    }
}

std::vector<Prompt> prompts_of_file(const PromptArguments& arguments, const TextFiles& files,
                                    const std::string& model) {
    const std::string& path = arguments.file;
    const std::string name = fmt::format("{} {}", arguments.file_option, printable(path));
    const TemplateVariables more =
        template_variables_of(arguments.template_kwargs, "--chat-template-kwargs");
    std::ifstream in(path);
    if (!in) {
        const std::string cause = errno_text(errno);
        fail(ExitCode::kInput, "{}: cannot be read: {}{}", name, cause, near_file_text(path));
    }
    std::vector<Prompt> prompts;
    for (std::string text; std::getline(in, text);) {
        std::string_view line = text;
        if (prompts.empty() && line.starts_with(kByteOrderMark))
            line.remove_prefix(kByteOrderMark.size());
        if (trim(line).empty()) continue;
        if (prompts.empty()) require_json_lines(line, arguments, model);
        prompts.push_back(prompt_of_line(line, files, more));
    }
    if (in.bad()) fail(ExitCode::kInput, "{}: cannot be read: {}", name, errno_text(errno));
    if (prompts.empty())
        fail(ExitCode::kInput, "{}: is empty; expected lines such as {}", name, kLineForms);
    if (std::ranges::none_of(prompts, [](const Prompt& prompt) { return prompt.fault.empty(); }))
        fail(ExitCode::kInput,
             "{}: none of its lines is a valid prompt; the error in the first is: {}. Expected "
             "lines "
             "such as {}",
             name, prompts.front().fault, kLineForms);
    const auto answered = std::ranges::count_if(prompts, &Prompt::follows_answer);
    if (answered > 0)
        log_warn("generate",
                 "{}: {} of {} end with an assistant's answer, so a second answer is generated "
                 "after it. To have the question answered again, remove the last message; to "
                 "continue the answer's text, set continue_final_message in the line",
                 printable(path), answered, counted(std::ssize(prompts), "line"));
    return prompts;
}

}  // namespace dslaunch::worker
