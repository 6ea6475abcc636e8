#include "text/pattern/char_set.h"

#include <algorithm>
#include <iterator>

namespace dslaunch::text {
namespace {

struct ScriptRun {
    std::string_view script;
    char32_t first;
    char32_t last;
};
constexpr ScriptRun kScriptRuns[] = {
#include "text/unicode/script_runs.inc"
};

constexpr std::string_view kCategoryNames[] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};

struct LongName {
    std::string_view name;
    std::string_view category;
};
constexpr LongName kLongNames[] = {{"Letter", "L"},
                                   {"Mark", "M"},
                                   {"Number", "N"},
                                   {"Punctuation", "P"},
                                   {"Symbol", "S"},
                                   {"Separator", "Z"},
                                   {"Other", "C"},
                                   {"Punct", "P"},
                                   {"Uppercase_Letter", "Lu"},
                                   {"Lowercase_Letter", "Ll"},
                                   {"Decimal_Number", "Nd"},
                                   {"Nonspacing_Mark", "Mn"},
                                   {"Modifier_Letter", "Lm"},
                                   {"Other_Letter", "Lo"}};

}  // namespace

void CharSet::add(char32_t first, char32_t last) {
    for (char32_t point = first; point <= last && point < 128; ++point) ascii_[point] = true;
    if (last >= 128) ranges_.push_back({std::max<char32_t>(first, 128), last});
}

void CharSet::add_classes(const std::function<bool(uint32_t)>& wanted) {
    const CodePoints& points = CodePoints::table();
    for (char32_t point = 0; point < 128; ++point)
        if (wanted(points.flags(point))) ascii_[point] = true;
    for (size_t index = 0; index < points.classes_count(); ++index)
        if (wanted(points.class_flags(index))) classes_[index] = true;
}

void CharSet::negate() {
    for (bool& bit : ascii_) bit = !bit;
    for (bool& bit : classes_) bit = !bit;
    ranges_are_in_ = !ranges_are_in_;
}

bool CharSet::has(char32_t point) const {
    if (point < 128) return ascii_[point];
    for (const CharRange& range : ranges_)
        if (point >= range.first && point <= range.last) return ranges_are_in_;
    return classes_[CodePoints::table().class_of(point)];
}

bool CharSet::is_disjoint(const CharSet& other) const {
    if (!ranges_.empty() || !other.ranges_.empty()) return false;
    for (size_t i = 0; i < ascii_.size(); ++i)
        if (ascii_[i] && other.ascii_[i]) return false;
    for (size_t i = 0; i < classes_.size(); ++i)
        if (classes_[i] && other.classes_[i]) return false;
    return true;
}

std::optional<std::function<bool(uint32_t)>> category_named(std::string_view name) {
    for (const LongName& longer : kLongNames)
        if (name == longer.name) name = longer.category;
    uint32_t wanted = 0;
    for (size_t i = 0; i < std::size(kCategoryNames); ++i)
        if (kCategoryNames[i] == name || (name.size() == 1 && kCategoryNames[i][0] == name[0]))
            wanted |= 1u << i;
    if (wanted == 0) return std::nullopt;
    return [wanted](uint32_t flags) { return (wanted >> (flags & 31) & 1) != 0; };
}

std::vector<CharRange> script_named(std::string_view name) {
    std::vector<CharRange> ranges;
    for (const ScriptRun& run : kScriptRuns)
        if (run.script == name) ranges.push_back({run.first, run.last});
    return ranges;
}

std::vector<CharRange> ranges_of(const std::function<bool(char32_t)>& wanted) {
    constexpr char32_t kSingleEnd = 0x2100;
    const CodePoints& points = CodePoints::table();
    std::vector<CharRange> ranges;
    for (char32_t first = 0, end = 0; first < kCodePointLimit; first = end) {
        end = first < kSingleEnd ? first + 1 : points.run_end(first);
        if (!wanted(first)) continue;
        if (!ranges.empty() && ranges.back().last + 1 == first) {
            ranges.back().last = end - 1;
        } else {
            ranges.push_back({first, end - 1});
        }
    }
    return ranges;
}

bool is_word_point(char32_t point) {
    if (point == 0xB2 || point == 0xB3 || point == 0xB9 || (point >= 0xBC && point <= 0xBE))
        return true;
    return is_word_point_in_class(point);
}

bool is_word_point_in_class(char32_t point) {
    if (point == 0x200C || point == 0x200D) return false;
    return (CodePoints::table().flags(point) & kWordFlag) != 0;
}

}  // namespace dslaunch::text
