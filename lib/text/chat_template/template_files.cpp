#include "text/chat_template/template_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/members.h"

namespace dslaunch::text {
namespace {

namespace fs = std::filesystem;
using jinja::Value;
using jinja::ValueKind;

constexpr const char* kMoreTemplates = "additional_chat_templates";  // as in transformers
constexpr size_t kTemplateFileBytesMax = size_t{64} << 20;

Value json_object_of(const std::string& path, const std::string& text) {
    Value value;
    try {
        value = jinja::value_of_json(text);
    } catch (const jinja::Fault& fault) {
        fail(ExitCode::kInput, "{}: {}; is the file complete?", path, printable(fault.what()));
    }
    if (!value.is(ValueKind::kDict))
        fail(ExitCode::kInput, "{}: the file is not a JSON object", path);
    return value;
}

// Returns the text of TOKEN, which is a string or an object with the text as `content`.
const std::string* token_text(const Value& token) {
    return token.is(ValueKind::kText) ? &token.text() : jinja::text_member(token, "content");
}

void add_special_tokens(TemplateVariables& tokens, const Value& config) {
    const auto add = [&](const Value& name, const Value& token) {
        const std::string* text = token_text(token);
        if (!name.is(ValueKind::kText) || text == nullptr) return;
        const bool is_there = std::any_of(tokens.begin(), tokens.end(), [&](const auto& other) {
            return other.first == name.text();
        });
        if (!is_there) tokens.emplace_back(name.text(), jinja::plain_text(*text));
    };
    for (const auto& [name, token] : config.dict().entries) {
        if (!name.is(ValueKind::kText)) continue;
        if (name.text().ends_with("_token")) add(name, token);
        const bool is_list_of_more =
            name.text() == "extra_special_tokens" || name.text() == "model_specific_special_tokens";
        if (!is_list_of_more || !token.is(ValueKind::kDict)) continue;
        for (const auto& [more_name, more] : token.dict().entries) add(more_name, more);
    }
}

using NamedSources = std::vector<std::pair<std::string, std::string>>;

// Returns the sources in CONFIG's field `chat_template`. The field is a string, a list of named
// strings, or an object.
NamedSources sources_in(const std::string& path, const Value& config) {
    NamedSources sources;
    const Value* held = jinja::member(config, "chat_template");
    if (held == nullptr || held->is(ValueKind::kNone)) return sources;
    const auto add = [&](const Value* name, const Value* text) {
        const bool is_ok = name != nullptr && text != nullptr && name->is(ValueKind::kText) &&
                           text->is(ValueKind::kText);
        if (!is_ok)
            fail(ExitCode::kInput,
                 "{}: each entry of chat_template must have a name and a template, both strings",
                 path);
        sources.emplace_back(name->text(), text->text());
    };
    if (held->is(ValueKind::kText)) {
        sources.emplace_back("default", held->text());
    } else if (held->is(ValueKind::kDict)) {
        for (const auto& [name, text] : held->dict().entries) add(&name, &text);
    } else if (held->is(ValueKind::kList)) {
        for (const Value& one : held->items())
            add(jinja::member(one, "name"), jinja::member(one, "template"));
    } else {
        add(nullptr, nullptr);
    }
    return sources;
}

std::optional<std::string> file_text(const fs::path& path) {
    std::error_code problem;
    if (!fs::exists(path, problem)) return std::nullopt;
    return read_file(path.string(), kTemplateFileBytesMax);
}

}  // namespace

std::optional<std::string> special_token_of(const std::string& folder, std::string_view name) {
    TemplateVariables tokens;
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
        const fs::path path = fs::path(folder) / file;
        if (const auto text = file_text(path))
            add_special_tokens(tokens, json_object_of(path.string(), *text));
    }
    for (const auto& [other, value] : tokens)
        if (other == name) return value.text();
    return std::nullopt;
}

std::optional<ChatTemplates> ChatTemplates::parse(const std::string& folder,
                                                  const TemplateSources& sources) {
    NamedSources named;
    if (sources.template_file) named.emplace_back("default", *sources.template_file);
    for (const auto& more : sources.more_files) named.push_back(more);
    TemplateVariables tokens;
    if (sources.tokenizer_config) {
        const std::string path = folder + "/tokenizer_config.json";
        const Value config = json_object_of(path, *sources.tokenizer_config);
        add_special_tokens(tokens, config);
        if (named.empty()) named = sources_in(path, config);
    }
    if (sources.special_tokens) {
        const std::string path = folder + "/special_tokens_map.json";
        add_special_tokens(tokens, json_object_of(path, *sources.special_tokens));
    }
    if (sources.template_json && named.empty()) {
        const std::string path = folder + "/chat_template.json";
        named = sources_in(path, json_object_of(path, *sources.template_json));
    }
    if (named.empty()) return std::nullopt;
    ChatTemplates all;
    all.folder_ = folder;
    for (const auto& [name, source] : named) {
        all.templates_.emplace_back(
            name,
            ChatTemplate::parse(
                source, fmt::format("{}: chat template `{}`", folder, printable(name)), tokens));
    }
    return all;
}

std::optional<ChatTemplates> ChatTemplates::read(const std::string& folder) {
    const fs::path root(folder);
    TemplateSources sources;
    sources.template_file = file_text(root / "chat_template.jinja");
    sources.tokenizer_config = file_text(root / "tokenizer_config.json");
    sources.template_json = file_text(root / "chat_template.json");
    sources.special_tokens = file_text(root / "special_tokens_map.json");
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(root / kMoreTemplates, problem)) {
        if (entry.path().extension() != ".jinja") continue;
        if (auto text = file_text(entry.path()))
            sources.more_files.emplace_back(entry.path().stem().string(), std::move(*text));
    }
    std::sort(sources.more_files.begin(), sources.more_files.end());
    return parse(folder, sources);
}

const ChatTemplate& ChatTemplates::choose(bool with_tools, const std::string& name) const {
    const auto find = [&](std::string_view wanted) -> const ChatTemplate* {
        for (const auto& [other, held] : templates_)
            if (other == wanted) return &held;
        return nullptr;
    };
    const ChatTemplate* chosen = nullptr;
    if (!name.empty()) {
        chosen = find(name);
    } else {
        if (with_tools) chosen = find("tool_use");
        if (chosen == nullptr) chosen = find("default");
        if (chosen == nullptr && templates_.size() == 1) chosen = &templates_.front().second;
    }
    if (chosen != nullptr) return *chosen;
    const std::vector<std::string> all = names();
    fail(ExitCode::kInput, "{}: there is no chat template `{}`; available: {}", folder_,
         printable(name.empty() ? "default" : name), printable(join(all, ", ")));
}

std::vector<std::string> ChatTemplates::names() const {
    std::vector<std::string> all;
    for (const auto& [name, held] : templates_) all.push_back(name);
    return all;
}

}  // namespace dslaunch::text
