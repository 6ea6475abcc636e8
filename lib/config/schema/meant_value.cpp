#include "config/schema/meant_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "base/text.h"
#include "config/read/quoteless.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

bool is_set(const Value& value) {
    return value.origin == "--set";
}

// The key of a section for which a single value in place of the section stands.
struct MainKey {
    std::string_view section;
    std::string_view key;
};

// Keys for a number, a word, and a switch. Sections with `enabled`, `stage`, `device` or `type` are
// found by these names.
constexpr std::array<MainKey, 7> kNumberKeys = {{{"dslaunch.lora", "r"},
                                                 {"dslaunch.save", "interval"},
                                                 {"tensor_parallel", "autotp_size"},
                                                 {"pipeline", "stages"},
                                                 {"activation_checkpointing", "number_checkpoints"},
                                                 {"optimizer.params", "lr"},
                                                 {"dslaunch.data", "eval_fraction"}}};
constexpr std::array<MainKey, 2> kWordKeys = {
    {{"dslaunch.data", "train"}, {"dslaunch.loss", "name"}}};

template <size_t N>
std::string main_key(const std::array<MainKey, N>& keys, const std::string& section,
                     std::string_view usual) {
    if (!usual.empty() && find_key(fmt::format("{}.{}", section, usual)) != nullptr)
        return std::string(usual);
    const auto* const row = std::ranges::find(keys, section, &MainKey::section);
    return row == keys.end() ? "" : std::string(row->key);
}

// Returns true or false for a word that means it in YAML 1.1, Python or a shell.
std::optional<bool> switch_of(const Value& value) {
    if (value.is(Kind::kBool)) return value.boolean;
    if (value.is(Kind::kInt) && (value.integer == 0 || value.integer == 1))
        return value.integer == 1;
    const std::string word = value.is(Kind::kString) ? lower(value.text) : "";
    for (const char* yes : {"on", "yes", "true", "enable", "enabled", "y"})
        if (word == yes) return true;
    for (const char* no : {"off", "no", "false", "disable", "disabled", "n", "none"})
        if (word == no) return false;
    return std::nullopt;
}

// Returns the number that WORD means with thousands separators, a unit, a percent sign or a decimal
// comma. IS_WHOLE: a whole number is wanted, as only these have units.
std::optional<double> number_meant(std::string word, bool is_whole) {
    word = std::string(trim(word));
    std::erase(word, '_');
    while (word.starts_with('=')) word.erase(0, 1);
    if (const auto plain = parse_double(word)) return plain;
    if (word.size() < 2) return std::nullopt;
    const auto number = parse_double(word.substr(0, word.size() - 1));
    switch (word.back()) {
        case '%':
            return number ? std::optional(*number / 100) : std::nullopt;
        case 'k':
        case 'K':
            return number && is_whole ? std::optional(*number * 1e3) : std::nullopt;
        case 'M':  // `m` may mean minutes
            return number && is_whole ? std::optional(*number * 1e6) : std::nullopt;
        case 'G':
            return number && is_whole ? std::optional(*number * 1e9) : std::nullopt;
        default:
            break;
    }
    if (const size_t slash = word.find('/'); slash != std::string::npos) {
        const auto above = parse_double(word.substr(0, slash)),
                   below = parse_double(word.substr(slash + 1));
        return above && below && *below != 0 ? std::optional(*above / *below) : std::nullopt;
    }
    if (std::ranges::count(word, ',') != 1) return std::nullopt;
    const size_t comma = word.find(',');
    const bool groups = word.size() == comma + 4 && word.front() != '0';  // 1,000
    word.replace(comma, 1, groups ? "" : ".");
    return parse_double(word);
}

// Returns TEXT as a list of numbers, "[0.9,0.95]"; empty if it is not one.
std::string list_meant(std::string text) {
    std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == '[' || c == ']'; });
    std::vector<std::string> numbers;
    for (const std::string& piece : split(text, text.find(',') == text.npos ? ' ' : ',')) {
        if (!parse_double(trim(piece))) return "";
        numbers.emplace_back(trim(piece));
    }
    return fmt::format("[{}]", join(numbers, ","));
}

bool is_nothing(const Value& value) {
    if (!value.is(Kind::kString)) return false;
    const std::string word = lower(value.text);
    return word == "none" || word == "nil" || word == "undefined" || word == "default";
}

// Returns VALUE in the spelling that TYPE needs; empty if it has none.
std::string in_spelling(KeyType type, const Value& value) {
    switch (type) {
        case KeyType::kBool:
            if (const auto on = switch_of(value)) return *on ? "true" : "false";
            return "";
        case KeyType::kInt:
        case KeyType::kFloat:
        case KeyType::kFloats: {
            if (is_nothing(value)) return "null";
            const auto number = value.is(Kind::kString)
                                    ? number_meant(value.text, type == KeyType::kInt)
                                    : std::optional<double>();
            if (!number || !std::isfinite(*number)) return "";
            if (type == KeyType::kInt && std::floor(*number) != *number) return "";
            return fmt::format("{}", *number);
        }
        case KeyType::kList:
            if (value.is(Kind::kString)) return list_meant(value.text);
            return "";
        default:
            return "";
    }
}

// Returns VALUE as --set takes it.
std::string set_value(const Value& value) {
    return value.is(Kind::kString) ? printable(value.text) : to_json(value);
}

// The path below SECTION and the value that the user probably meant by VALUE in place of SECTION;
// both are empty if nothing is known.
struct Meant {
    std::string key;
    std::string value;
    bool is_word = false;  // true: VALUE needs quotes in JSON
};

Meant meant_in_section(const std::string& section, const Value& value) {
    const auto has = [&](const char* key) {
        return find_key(fmt::format("{}.{}", section, key)) != nullptr;
    };
    const bool is_word = value.is(Kind::kString);
    if (is_word && value.text == "auto" && has("enabled")) return {"enabled", "auto", true};
    // `r=16` in place of {"r": 16}.
    if (const size_t equals = value.text.find('='); is_word && equals != std::string::npos) {
        const std::string key(trim(std::string_view(value.text).substr(0, equals)));
        if (has(key.c_str())) return {key, value.text.substr(equals + 1)};
        return {};
    }
    const auto on = switch_of(value);
    if (on && !value.is(Kind::kInt) && has("enabled")) return {"enabled", *on ? "true" : "false"};
    if ((is_word || value.is(Kind::kBool)) && has("device"))
        return {"device", is_word ? value.text : *on ? "cpu" : "none", true};
    if (value.is(Kind::kInt) || value.is(Kind::kFloat)) {
        const std::string key = main_key(kNumberKeys, section, value.is(Kind::kInt) ? "stage" : "");
        if (!key.empty()) return {key, to_json(value)};
    }
    if (is_word && !on) {
        std::string word = value.text;
        const std::string key = main_key(kWordKeys, section, "type");
        if (key == "type")
            for (const std::string& known : available_types(section))
                if (lower(known) == lower(word)) word = known;
        if (!key.empty()) return {key, word, true};
    }
    return {};
}

// Returns the settings in VALUE, a word that has several joined with commas: `2,bf16.enabled=true`
// for KEY is "--set KEY=2 --set bf16.enabled=true". Returns an empty text for other words.
std::string several_settings(const std::string& path, const Value& value) {
    if (!is_set(value) || !value.is(Kind::kString)) return "";
    const std::vector<std::string> pieces = split(value.text, ',');
    std::string settings = fmt::format("--set {}={}", path, printable(pieces.front()));
    for (size_t i = 1; i < pieces.size(); ++i) {
        const std::string piece(trim(pieces[i]));
        const size_t equals = piece.find('=');
        if (equals == std::string::npos || find_key(piece.substr(0, equals)) == nullptr) return "";
        settings += fmt::format(" --set {}", printable(piece));
    }
    return pieces.size() > 1 ? settings : "";
}

}  // namespace

std::string meant_setting(const std::string& path, const Value& value) {
    const KeySpec* const key = find_key(path);
    if (key == nullptr) return "";
    if (std::string settings = several_settings(path, value); !settings.empty()) return settings;
    if (key->type == KeyType::kObject) {
        const Meant meant = meant_in_section(path, value);
        if (meant.key.empty()) return "";
        if (is_set(value))
            return fmt::format("--set {}.{}={}", path, meant.key, printable(meant.value));
        return fmt::format("{{\"{}\": {}}}", meant.key,
                           meant.is_word ? to_json(make_value(meant.value)) : meant.value);
    }
    const std::string spelling =
        path == "dslaunch.save.best" ? "\"eval_loss\"" : in_spelling(key->type, value);
    if (spelling.empty() || !is_set(value)) return spelling;
    return fmt::format("--set {}={}", path, spelling);
}

std::string set_text(std::string path, const Value& value) {
    if (!is_set(value)) return "";
    const Value* inner = &value;
    while (inner->is(Kind::kObject) && inner->items.size() == 1) {
        path += "." + inner->keys.front();
        inner = &inner->items.front();
    }
    const KeySpec* const key = find_key(path);
    if (key == nullptr || inner->is(Kind::kNull)) return "";
    if (fits_type(key->type, *inner) && !inner->is(Kind::kObject))
        return fmt::format(" (--set {}={})", path, set_value(*inner));
    Value given = *inner;
    given.origin = value.origin;
    const std::string meant = meant_setting(path, given);
    return meant.empty() ? "" : fmt::format(" ({})", meant);
}

std::string joined_name_text(const std::string& name) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == name.size()) return "";
    return fmt::format(": a blank is missing after the colon: {}: {}", name.substr(0, colon),
                       name.substr(colon + 1));
}

}  // namespace dslaunch::config
