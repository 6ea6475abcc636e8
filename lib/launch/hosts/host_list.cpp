#include "launch/hosts/host_list.h"

#include <fmt/format.h>

#include <optional>

#include "base/text.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kDigitsMax = 9;         // digits of a range's end
constexpr size_t kFoldedDigitsMax = 18;  // digits of a name's number; the number plus one fits into
                                         // int64_t

// Reads a number with at most kDigitsMax digits at AT, and moves AT past it. Returns nothing if
// there is no such number.
std::optional<int64_t> read_number(std::string_view text, size_t& at) {
    const size_t start = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    if (at - start > kDigitsMax) return std::nullopt;
    return parse_int(text.substr(start, at - start));
}

// A name, split into its prefix, its last run of digits and its suffix.
struct NumberedName {
    std::string prefix, digits, suffix;
    int64_t number = 0;
};

std::optional<NumberedName> numbered(const std::string& name) {
    size_t end = name.size();
    while (end > 0 && !is_digit(name[end - 1])) --end;
    size_t begin = end;
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    if (end - begin > kFoldedDigitsMax) return std::nullopt;
    NumberedName parts{name.substr(0, begin), name.substr(begin, end - begin), name.substr(end), 0};
    const auto number = parse_int(parts.digits);
    if (!number) return std::nullopt;
    parts.number = *number;
    return parts;
}

// Returns the longest range of names, beginning at index FIRST, that fits into one bracket.
NumberRange run_from(const std::vector<std::string>& names, size_t first,
                     const NumberedName& parts) {
    NumberRange range{parts.number, parts.number, parts.digits.size()};
    for (size_t i = first + 1; i < names.size(); ++i) {
        if (names[i] != parts.prefix + range.write(range.last + 1) + parts.suffix) break;
        ++range.last;
    }
    return range;
}

}  // namespace

std::string NumberRange::write(int64_t number) const {
    return fmt::format("{:0{}}", number, digits);
}

std::vector<std::string> NumberRange::names(std::string_view prefix,
                                            std::string_view suffix) const {
    std::vector<std::string> names;
    for (int64_t number = first; number <= last; ++number) {
        names.push_back(fmt::format("{}{:0{}}{}", prefix, number, digits, suffix));
    }
    return names;
}

ReadRange read_range(std::string_view text, size_t at) {
    ReadRange read;
    const auto first = read_number(text, read.end = at);
    read.range.digits = read.end - at;
    read.is_single = read.end == text.size() || text[read.end] != '-';
    const auto last = !first || read.is_single ? first : read_number(text, ++read.end);
    if (!first || !last) {
        read.fault = RangeFault::kNoNumber;
        return read;
    }
    read.range.first = *first;
    read.range.last = *last;
    if (*last < *first) {
        read.fault = RangeFault::kBackwards;
    } else if (*last - *first >= kRangeHostsMax) {
        read.fault = RangeFault::kTooLong;
    }
    return read;
}

std::string fold_names(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size();) {
        if (!text.empty()) text += ',';
        const auto parts = numbered(names[i]);
        const NumberRange range = parts ? run_from(names, i, *parts) : NumberRange{};
        if (range.first == range.last) {
            text += names[i++];
            continue;
        }
        text += fmt::format("{}[{}-{}]{}", parts->prefix, range.write(range.first),
                            range.write(range.last), parts->suffix);
        i += static_cast<size_t>(range.last - range.first + 1);
    }
    return text;
}

}  // namespace dslaunch::launch
