#include "storage/adapter/target_names.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "base/text.h"

namespace dslaunch::storage {

namespace {

// Returns PATTERN, a regular expression of Python, in ECMAScript's syntax. Throws std::regex_error
// for patterns whose meaning differs in ECMAScript: escaped letters, classes within classes,
// possessive quantifiers.
std::string as_ecmascript(const std::string& pattern) {
    namespace kinds = std::regex_constants;
    constexpr std::string_view kSameEscapes = "dDsSwWbBnrtfvxu", kQuantifiers = "*+?}";
    std::string made;
    bool in_class = false;
    for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
        if (c == '\\') {
            ++i;
            if (next == 'A' || next == 'Z') {
                made += next == 'A' ? '^' : '$';
                continue;
            }
            if (std::isalnum(static_cast<unsigned char>(next)) != 0 &&
                kSameEscapes.find(next) == std::string_view::npos)
                throw std::regex_error(kinds::error_escape);
            made += {c, next};
            continue;
        }
        const std::string_view rest = std::string_view(pattern).substr(i + 1);
        if (c == '[' && (in_class ? next == ':' || next == '.' || next == '='
                                  : next == ']' || rest.starts_with("^]")))
            throw std::regex_error(kinds::error_brack);
        if (!in_class && next == '+' && kQuantifiers.find(c) != std::string_view::npos)
            throw std::regex_error(kinds::error_badrepeat);
        in_class = c == '[' || (in_class && c != ']');
        made += c;
    }
    return made;
}

// Returns a matcher that takes polynomial time, because a pattern from a file could otherwise take
// exponential time. The matcher does not support back-references.
std::regex compile(const std::string& pattern) {
    return std::regex(as_ecmascript(pattern),
                      std::regex::ECMAScript | std::regex_constants::__polynomial);
}

bool fits_whole(const std::string& pattern, std::string_view path) {
    return std::regex_match(path.begin(), path.end(), compile(pattern));
}

// Returns true if PATTERN matches all of PATH, or the part of PATH after one of its dots.
bool fits_end(const std::string& pattern, std::string_view path) {
    // Most patterns are plain names, and there may be one for each layer, so these are compared
    // without a regular expression.
    const bool is_name = std::ranges::all_of(
        pattern, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
    if (is_name) {
        if (path.size() < pattern.size()) return false;
        const std::string_view end = path.substr(path.size() - pattern.size());
        const bool begins = end.size() == path.size() || path[path.size() - end.size() - 1] == '.';
        return begins && std::ranges::equal(pattern, end, [](char expected, char c) {
                   return expected == '.' ? c != '\n' : expected == c;
               });
    }
    return fits_whole("(.*\\.)?(" + pattern + ")", path);
}

// Returns the number of the layer in PATH, for example 3 for "model.layers.3.mlp". LISTS are the
// names of the modules that contain numbered layers, such as "layers". If LISTS is empty, any
// module except the outermost one may contain them.
std::optional<int64_t> layer_number(std::string_view path, const std::vector<std::string>& lists) {
    size_t names = 0;
    for (size_t begin = 0, dot = path.find('.'); dot != std::string_view::npos;
         begin = dot + 1, dot = path.find('.', begin), ++names) {
        const auto number = parse_int(path.substr(begin, dot - begin));
        if (!number || *number < 0 || names == 0) continue;
        if (lists.empty() ? names >= 2 : std::ranges::any_of(lists, [&](const std::string& list) {
                return fits_end(list, path.substr(0, begin - 1));
            }))
            return *number;
    }
    return std::nullopt;
}

}  // namespace

void require_pattern(const std::string& pattern) {
    static_cast<void>(compile(pattern));
}

double number_for(const NamedNumbers& numbers, std::string_view path, double otherwise) {
    for (const auto& [pattern, number] : numbers)
        if (fits_end(pattern, path)) return number;
    return otherwise;
}

bool NameRule::fits(std::string_view path) const {
    if (pattern) return fits_whole(*pattern, path);
    return std::ranges::any_of(
        ends, [&](const std::string& end) { return path == end || path.ends_with("." + end); });
}

bool TargetNames::may_have(std::string_view path) const {
    if (!excluded.is_empty() && excluded.fits(path)) return false;
    if (names_all_linear || targets.is_empty()) return true;
    if (!targets.fits(path)) return false;
    const bool is_whole = std::ranges::find(targets.ends, path) != targets.ends.end();
    if (targets.pattern || layers.empty() || is_whole) return true;
    const std::optional<int64_t> number = layer_number(path, lists);
    return number && std::ranges::find(layers, *number) != layers.end();
}

}  // namespace dslaunch::storage
