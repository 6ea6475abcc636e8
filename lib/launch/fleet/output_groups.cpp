#include "launch/fleet/output_groups.h"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <optional>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

// A name as prefix, its last run of digits, suffix.
struct NumberedName {
    std::string prefix, digits, suffix;
    int64_t number = 0;
};

bool is_digit(char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

std::optional<NumberedName> numbered(const std::string& name) {
    size_t end = name.size();
    while (end > 0 && !is_digit(name[end - 1])) --end;
    size_t begin = end;
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    if (begin == end) return std::nullopt;
    NumberedName parts{name.substr(0, begin), name.substr(begin, end - begin), name.substr(end), 0};
    const auto number = parse_int(parts.digits);
    if (!number) return std::nullopt;
    parts.number = *number;
    return parts;
}

bool follows(const NumberedName& first, const NumberedName& before, const NumberedName& name) {
    return name.prefix == first.prefix && name.suffix == first.suffix &&
           name.number == before.number + 1 &&
           (name.digits.size() == first.digits.size() ||
            (first.digits.front() != '0' && name.digits.front() != '0'));
}

}  // namespace

std::string fold_names(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size();) {
        const auto first = numbered(names[i]);
        size_t end = i + 1;
        auto before = first;
        while (first && end < names.size()) {
            const auto next = numbered(names[end]);
            if (!next || !follows(*first, *before, *next)) break;
            before = next;
            ++end;
        }
        if (!text.empty()) text += ',';
        text += end - i == 1 ? names[i]
                             : fmt::format("{}[{}-{}]{}", first->prefix, first->digits,
                                           before->digits, first->suffix);
        i = end;
    }
    return text;
}

std::vector<OutputGroup> group_equal(const std::vector<std::string>& texts) {
    std::vector<OutputGroup> groups;
    std::map<std::string, size_t> group_of;
    for (size_t i = 0; i < texts.size(); ++i) {
        const auto [found, is_new] = group_of.emplace(texts[i], groups.size());
        if (is_new) groups.push_back({{}, texts[i]});
        groups[found->second].hosts.push_back(i);
    }
    return groups;
}

}  // namespace dslaunch::launch
