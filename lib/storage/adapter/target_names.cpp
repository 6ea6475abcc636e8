#include "storage/adapter/target_names.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "base/text.h"

namespace dslaunch::storage {

namespace {

// The matcher whose time grows with the lengths alone, as a file's pattern may be meant to take
// long. It knows no references to groups.
std::regex compile(const std::string& pattern) {
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
}

bool fits_whole(const std::string& pattern, std::string_view path) {
    return std::regex_match(path.begin(), path.end(), compile(pattern));
}

// True if PATTERN fits PATH, or its end after a dot.
bool fits_end(const std::string& pattern, std::string_view path) {
    // Most are names, and there may be one for each layer.
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

// The number of the layer in PATH: the first name that is a number, after the name of a list. If
// LISTS has none, the list lies in some module. "model.layers.3.mlp" has 3.
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
    if (all_linear || targets.is_empty()) return true;
    if (!targets.fits(path)) return false;
    const bool is_whole = std::ranges::find(targets.ends, path) != targets.ends.end();
    if (targets.pattern || layers.empty() || is_whole) return true;
    const std::optional<int64_t> number = layer_number(path, lists);
    return number && std::ranges::find(layers, *number) != layers.end();
}

}  // namespace dslaunch::storage
