#include "config/read/quoteless.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace dslaunch::config {
namespace {

constexpr size_t kShownBytesMax = 40;
constexpr std::string_view kBlanks = " \t\r";

bool is_json_number(std::string_view text) {
    const bool begins = !text.empty() && (is_digit(text[0]) || text[0] == '-');
    return begins && is_digit(text.back()) && nlohmann::json::accept(text);
}

// Finds words of Python and JavaScript that JSON spells differently.
std::optional<Mistake> foreign_word(std::string_view text) {
    static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"None", "null"}, {"Null", "null"}, {"NULL", "null"},   {"undefined", "null"},
        {"True", "true"}, {"TRUE", "true"}, {"False", "false"}, {"FALSE", "false"},
    };
    const size_t end = std::min(text.find_first_of(",}] \t"), text.size());
    if (text.find_first_not_of(",}] \t", end) != std::string_view::npos) return {};
    for (const auto& [word, right] : kWords) {
        if (text.substr(0, end) == word)
            return Mistake{0, fmt::format("`{}` is not a word of JSON: write {}", word, right)};
    }
    return {};
}

// Finds a word for a number that is not finite.
std::optional<Mistake> endless_number(std::string_view text) {
    static constexpr std::string_view kWords[] = {"NaN",  "nan",       "NAN", "Infinity",
                                                  "-inf", "-Infinity", "inf", "Inf"};
    const std::string_view word = text.substr(0, text.find_first_of(",}] \t"));
    if (std::ranges::find(kWords, word) == std::end(kWords)) return {};
    return Mistake{0, fmt::format("JSON has no {}: write a number", word)};
}

// Finds typographic quotes, and characters that look like a blank.
std::optional<Mistake> foreign_sign(std::string_view text) {
    static constexpr std::string_view kQuotes[] = {"\u201c", "\u201d", "\u201e", "\u00ab",
                                                   "\u00bb", "\u2018", "\u2019", "\u201a"};
    static constexpr std::pair<std::string_view, std::string_view> kForeignBlanks[] = {
        {"\u00a0", "U+00A0"}, {"\u202f", "U+202F"}, {"\u200b", "U+200B"}, {"\ufeff", "U+FEFF"}};
    for (const std::string_view quote : kQuotes) {
        if (const size_t at = text.find(quote); at != std::string_view::npos)
            return Mistake{at, fmt::format("{} is not a quote of JSON: write \"", quote)};
    }
    for (const auto& [blank, name] : kForeignBlanks) {
        if (const size_t at = text.find(blank); at != std::string_view::npos)
            return Mistake{
                at, fmt::format("the character {} only looks like a blank: write a blank", name)};
    }
    return {};
}

bool pairs(std::string_view text, std::string_view opening, std::string_view closing) {
    int64_t depth = 0;
    for (const char c : text) {
        if (opening.find(c) != std::string_view::npos) ++depth;
        if (closing.find(c) != std::string_view::npos && --depth < 0) return false;
    }
    return depth == 0;
}

// Returns true if a quote in TEXT is followed by a colon, with or without blanks between: such a
// quote ends a key.
bool holds_key(std::string_view text) {
    for (size_t at = text.find_first_of("\"'"); at != std::string_view::npos;
         at = text.find_first_of("\"'", at + 1)) {
        const size_t next = text.find_first_not_of(kBlanks, at + 1);
        if (next != std::string_view::npos && text[next] == ':') return true;
    }
    return false;
}

std::optional<Mistake> missing_quote(std::string_view text) {
    const bool odd = std::count(text.begin(), text.end(), '"') % 2 == 1;
    const bool apostrophe =
        text.back() == '\'' && std::count(text.begin(), text.end(), '\'') % 2 == 1;
    const bool key = holds_key(text);
    if (!odd && !apostrophe && !key) return {};
    const size_t quote = text.find_first_of("\"'");
    if (key && json_literal(trim(text.substr(0, quote)))) {
        return Mistake{quote,
                       fmt::format("a comma is missing before {}", shown(text.substr(quote)))};
    }
    return Mistake{0, fmt::format("a quote is missing before {}", shown(text))};
}

// Returns true if TEXT is `name:` or begins with `name: `.
bool looks_like_entry(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || colon == 0 || is_digit(text[0])) return false;
    const std::string_view name = trim(text.substr(0, colon));
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
        return is_digit(c) || c == '_' || c == '-' || (c >= 'a' && c <= 'z') ||
               (c >= 'A' && c <= 'Z');
    });
    return plain && (colon + 1 == text.size() || text[colon + 1] == ' ');
}

}  // namespace

std::optional<Value> json_literal(std::string_view text) {
    if (text == "null") return Value{};
    if (text == "true" || text == "false") return make_value(text == "true");
    if (!is_json_number(text)) return {};
    if (text.find_first_of(".eE") == std::string_view::npos) {
        if (const auto integer = parse_int(text)) return make_value(*integer);
    }
    if (const auto number = parse_double(text)) return make_value(*number);
    return {};
}

std::optional<std::string> number_mistake(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    const bool maybe = text.find_first_not_of("0123456789.eE+-") == std::string_view::npos;
    if (text.empty() || !maybe || parse_double(text)) return {};
    const std::string whole(text);
    char* end = nullptr;
    errno = 0;
    const double number = std::strtod(whole.c_str(), &end);
    if (errno != ERANGE || *end != '\0') return {};
    return std::abs(number) > 1
               ? fmt::format("{} is too large: numbers must be below 1.8e308", shown(text))
               : fmt::format("{} is too small and would be 0: write 0, or at least 4.9e-324",
                             shown(text));
}

std::optional<Mistake> quoteless_mistake(std::string_view text, bool on_next_line) {
    if (on_next_line && looks_like_entry(text)) {
        return Mistake{0, fmt::format("{} cannot be the value of the key above it: write a value "
                                      "after the key's `:`, and {{ }} around a section",
                                      shown(text))};
    }
    if (auto word = foreign_word(text)) return word;
    if (auto quote = missing_quote(text)) return quote;
    if (text.back() == ',' || !pairs(text, "{[", "}]")) {
        if (auto endless = endless_number(text)) return endless;
        return Mistake{0,
                       fmt::format("{} is not a number or word of JSON, and as text without quotes "
                                   "it would include the rest of its line: put it in quotes",
                                   shown(text))};
    }
    auto sign = foreign_sign(text);
    if (sign && sign->at == 0) return sign;
    return {};
}

std::optional<Mistake> key_mistake(std::string_view key) {
    if (auto sign = foreign_sign(key)) return sign;
    if (key.find_first_of("\"'") == std::string_view::npos) return {};
    return Mistake{
        0, fmt::format("a quote is missing before {}, or in the text before it", shown(key))};
}

std::string shown(std::string_view text) {
    size_t end = 0;
    while (end < text.size() && end < kShownBytesMax)
        end += std::max<size_t>(1, utf8_length(text, end));
    return fmt::format("`{}{}`", text.substr(0, end), end < text.size() ? "…" : "");
}

std::string shown(const Value& value) {
    return value.is(Value::Kind::kString) ? shown(printable(value.text)) : describe(value);
}

}  // namespace dslaunch::config
