#include "config/schema/schema.h"

#include "base/check.h"
#include "base/screen.h"
#include "base/text.h"
#include "config/read/train_config.h"
#include "config/schema/schema_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dslaunch::config {
namespace {

std::vector<KeySpec> joined_tables() {
    std::vector<KeySpec> all;
    for (const auto part : {training_keys(), zero_keys(), feature_keys(), service_keys(),
                            compression_keys(), dslaunch_keys()}) {
        all.insert(all.end(), part.begin(), part.end());
    }
    for (KeySpec& name : all) {
        if (*name.same_as == '\0') continue;
        const auto key = std::find_if(all.begin(), all.end(), [&](const KeySpec& other) {
            return std::string_view(other.path) == name.same_as;
        });
        DSL_CHECK(key != all.end(), "{} is no key of the schema", name.same_as);
        const KeySpec own = std::exchange(name, *key);
        name.path = own.path;
        name.doc = own.doc;
        name.same_as = own.same_as;
        if (own.fallback != nullptr) name.fallback = own.fallback;
        if (own.allowed != nullptr) name.allowed = own.allowed;
    }
    return all;
}

// True when the schema's PATTERN ("a.*.b") covers the concrete PATH. Exact names win over "*" in
// find_key.
bool covers(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
    if (pattern.size() != path.size()) return false;
    for (size_t i = 0; i < path.size(); ++i) {
        if (pattern[i] != "*" && pattern[i] != path[i]) return false;
    }
    return true;
}

const char* type_name(KeyType type) {
    switch (type) {
        case KeyType::kBool:
            return "bool";
        case KeyType::kInt:
            return "integer";
        case KeyType::kFloat:
            return "number";
        case KeyType::kFloats:
            return "number or list";
        case KeyType::kString:
            return "string";
        case KeyType::kStrings:
            return "string or list";
        case KeyType::kList:
            return "list";
        case KeyType::kObject:
            return "section";
        case KeyType::kFree:
            return "any";
    }
    return "";
}

const char* status_name(KeyStatus status) {
    switch (status) {
        case KeyStatus::kSupported:
            return "supported";
        case KeyStatus::kWithoutEffect:
            return "no effect";
        case KeyStatus::kNotYet:
            return "refused";
    }
    return "";
}

std::string cell(std::string text) {
    for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
        text.replace(at, 1, "\\|");
    }
    return text;
}

std::string meaning(const KeySpec& key) {
    std::string text = key.doc;
    if (*key.only_for != '\0')
        text += fmt::format(" (only {})", join(split(key.only_for, '|'), ", "));
    if (*key.note != '\0') text += fmt::format(". {}: {}", status_name(key.status), key.note);
    return text;
}

}  // namespace

const std::vector<KeySpec>& schema() {
    static const std::vector<KeySpec> keys = joined_tables();
    return keys;
}

const KeySpec* find_key(std::string_view path) {
    for (const KeySpec& key : schema()) {
        if (path == key.path) return &key;
    }
    std::vector<std::string> parts = split(path, '.');
    for (const KeySpec& key : schema()) {
        if (std::string_view(key.path).find('*') == std::string_view::npos) continue;
        if (covers(split(key.path, '.'), parts)) return &key;
    }
    return nullptr;
}

std::vector<std::string> key_names(std::string_view path) {
    std::vector<std::string> names;
    std::vector<std::string> parts = path.empty() ? std::vector<std::string>() : split(path, '.');
    for (const KeySpec& key : schema()) {
        std::vector<std::string> pattern = split(key.path, '.');
        std::string name = pattern.back();
        pattern.pop_back();
        if (covers(pattern, parts) && name != "*" && name != "[]") names.push_back(name);
    }
    return names;
}

Value default_value(const KeySpec& key) {
    TrainConfig scratch = empty_config();
    apply_override(scratch, std::string("default=") + key.fallback, "default");
    Value value = scratch.root.items.front();
    bool whole = value.is(Value::Kind::kFloat) && key.type == KeyType::kInt;
    if (whole) value = make_value(int64_t(value.number));
    value.origin = "default";
    return value;
}

bool takes_auto(const KeySpec& key) {
    if (key.type == KeyType::kStrings) return false;
    const std::vector<std::string> words = split(key.allowed, '|');
    return key.type != KeyType::kString ||
           (words.size() > 1 && std::ranges::count(words, "auto") == 0);
}

bool is_strings(const Value& value) {
    return value.is(Value::Kind::kString) ||
           (value.is(Value::Kind::kList) &&
            std::all_of(value.items.begin(), value.items.end(),
                        [](const Value& item) { return item.is(Value::Kind::kString); }));
}

std::string schema_markdown() {
    std::string page =
        "# Config keys\n\n"
        "Every key of ds_config.json that dslaunch knows. Made by `dslaunch config keys\n"
        "--markdown`; a test compares. `no effect`: accepted and checked, has no meaning here.\n"
        "`refused`: an error when it asks for something; null, the default, or a section that is\n"
        "not enabled ask for nothing.\n\n"
        "| key | type | default | values | status | meaning |\n|---|---|---|---|---|---|\n";
    for (const KeySpec& key : schema()) {
        page += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.path, type_name(key.type),
                            cell(key.fallback), cell(key.allowed), status_name(key.status),
                            cell(meaning(key)));
    }
    return page;
}

std::string schema_text(size_t width) {
    std::string text;
    for (const KeySpec& key : schema()) {
        if (width > 0) {
            constexpr size_t kIndent = 4;
            const std::string facts =
                fmt::format("{}, {}, {}. {}", type_name(key.type), key.fallback,
                            status_name(key.status), meaning(key));
            text += fmt::format("{}\n{:{}}{}\n", key.path, "", kIndent,
                                wrapped(facts, {width, kIndent, kIndent}));
            continue;
        }
        text += fmt::format("{:<60} {:<8} {:<10} {:<10} {}\n", key.path, type_name(key.type),
                            key.fallback, status_name(key.status), meaning(key));
    }
    return text;
}

}  // namespace dslaunch::config
