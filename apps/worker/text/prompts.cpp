#include "worker/text/prompts.h"

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::worker {

namespace {

using Json = nlohmann::ordered_json;

std::vector<int32_t> checked_tokens(const std::vector<int64_t>& ids, const char* where) {
    std::vector<int32_t> tokens;
    for (const int64_t token : ids) {
        if (token < 0 || token > INT32_MAX)
            fail(ExitCode::kInput, "{}: {} is no token", where, token);
        tokens.push_back(static_cast<int32_t>(token));
    }
    return tokens;
}

Prompt chat_prompt(const Json& messages, const TextFiles& files) {
    return {files.require_codec().encode(files.chat_text(messages), /*is_rendered=*/true), "",
            ""};
}

// Throws Error{kInput} and what nlohmann throws.
Prompt parse_line(const Json& json, const TextFiles& files) {
    if (!json.is_object()) fail(ExitCode::kInput, "is no JSON object");
    int kinds = 0;
    for (const char* kind : {"prompt", "prompt_ids", "messages"}) kinds += json.contains(kind);
    if (kinds != 1)
        fail(ExitCode::kInput, "has not one of the fields `prompt`, `prompt_ids`, `messages`");
    if (json.contains("prompt"))
        return {files.require_codec().encode(json["prompt"].get<std::string>(), false), "", ""};
    if (json.contains("messages")) return chat_prompt(json["messages"], files);
    return {checked_tokens(json["prompt_ids"].get<std::vector<int64_t>>(), "prompt_ids"), "", ""};
}

}  // namespace

Prompt prompt_of(const PromptArguments& arguments, const TextFiles& files) {
    const int given = (arguments.text.empty() ? 0 : 1) + (arguments.ids.empty() ? 0 : 1) +
                      (arguments.chat.empty() ? 0 : 1);
    if (given > 1) fail(ExitCode::kUsage, "--prompt, --prompt-ids and --chat exclude each other");
    if (!arguments.system.empty() && arguments.chat.empty())
        fail(ExitCode::kUsage, "--system is for --chat");
    if (!arguments.ids.empty()) return {checked_tokens(arguments.ids, "--prompt-ids"), "", ""};
    if (!arguments.chat.empty()) {
        Json messages = Json::array();
        if (!arguments.system.empty())
            messages.push_back({{"role", "system"}, {"content", arguments.system}});
        messages.push_back({{"role", "user"}, {"content", arguments.chat}});
        return chat_prompt(messages, files);
    }
    const std::string& text = arguments.text;
    return {files.require_codec().encode(text.empty() ? "\n" : text, false), text, ""};
}

Prompt prompt_of_line(std::string_view line, const TextFiles& files) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
        if (json.is_discarded()) fail(ExitCode::kInput, "is no JSON");
        Prompt prompt = parse_line(json, files);
        if (prompt.tokens.empty()) fail(ExitCode::kInput, "the prompt has no tokens");
        return prompt;
    } catch (const Error& error) {
        return {{}, "", error.what()};
    } catch (const Json::exception&) {
        return {{}, "", "a field has a value of the wrong kind"};
    }
}

std::vector<Prompt> prompts_of_file(const std::string& path, const TextFiles& files) {
    std::ifstream in(path);
    if (!in)
        fail(ExitCode::kInput, "--file {}: cannot be read: {}", printable(path), errno_text(errno));
    std::vector<Prompt> prompts;
    for (std::string line; std::getline(in, line);)
        if (line.find_first_not_of(" \t\r") != std::string::npos)
            prompts.push_back(prompt_of_line(line, files));
    return prompts;
}

}  // namespace dslaunch::worker
