#include "text/unicode/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

struct Point {
    char32_t point;
    int combining_class;
    uint32_t place;  // in the text
};
using Points = std::vector<Point>;

int combining_class(char32_t point) {
    if (!(CodePoints::table().flags(point) & kReordersFlag)) return 0;
    return utf8proc_get_property(static_cast<utf8proc_int32_t>(point))->combining_class;
}

void decompose(Points& out, char32_t point, uint32_t place, bool compatibly) {
    const uint32_t wanted = compatibly ? kCompatiblyFlag : kDecomposesFlag;
    if (!(CodePoints::table().flags(point) & wanted)) {
        out.push_back({point, combining_class(point), place});
        return;
    }
    std::array<utf8proc_int32_t, 32> parts;
    int boundary = 0;
    const auto options =
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatibly ? UTF8PROC_COMPAT : 0));
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < std::ssize(parts); ++i) {
        const auto part = static_cast<char32_t>(parts[static_cast<size_t>(i)]);
        out.push_back({part, combining_class(part), place});
    }
}

void reorder(Points& points) {
    for (size_t i = 0; i < points.size();) {
        if (points[i].combining_class == 0) {
            ++i;
            continue;
        }
        size_t end = i;
        while (end < points.size() && points[end].combining_class != 0) ++end;
        std::stable_sort(
            points.begin() + static_cast<std::ptrdiff_t>(i),
            points.begin() + static_cast<std::ptrdiff_t>(end),
            [](const Point& a, const Point& b) { return a.combining_class < b.combining_class; });
        i = end;
    }
}

constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr char32_t kLeadsCount = 19, kVowelsCount = 21, kTailsCount = 28;

// Returns the character that FIRST and SECOND compose to, or 0 if there is none.
char32_t composed(char32_t first, char32_t second) {
    if (first - kLeads < kLeadsCount && second - kVowels < kVowelsCount)
        return kSyllables + ((first - kLeads) * kVowelsCount + second - kVowels) * kTailsCount;
    if (first - kSyllables < kLeadsCount * kVowelsCount * kTailsCount &&
        (first - kSyllables) % kTailsCount == 0 && second > kTails && second - kTails < kTailsCount)
        return first + second - kTails;
    if (second < 0x300) return 0;  // no smaller code point is second in a pair
    std::array<utf8proc_int32_t, 2> pair = {static_cast<utf8proc_int32_t>(first),
                                            static_cast<utf8proc_int32_t>(second)};
    const auto length = utf8proc_normalize_utf32(
        pair.data(), 2, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (length != 1) return 0;
    const auto one = static_cast<char32_t>(pair[0]);
    return CodePoints::table().flags(one) & kDecomposesFlag ? one : 0;
}

void compose(Points& points) {
    size_t kept = 0;
    size_t starter = SIZE_MAX;
    int last_class = -1;  // of the last character after the starter; -1 if none
    for (const Point& next : points) {
        if (starter != SIZE_MAX && last_class < next.combining_class) {
            const char32_t one = composed(points[starter].point, next.point);
            if (one != 0) {
                points[starter].point = one;
                continue;
            }
        }
        if (next.combining_class == 0) {
            starter = kept;
            last_class = -1;
        } else {
            last_class = next.combining_class;
        }
        points[kept++] = next;
    }
    points.resize(kept);
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form, std::vector<uint32_t>* places) {
    const bool compatibly = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
    Points points;
    points.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const auto place = static_cast<uint32_t>(i);
        decompose(points, next_point(text, i), place, compatibly);
    }
    reorder(points);
    if (form == NormalForm::kNfc || form == NormalForm::kNfkc) compose(points);
    std::string out;
    out.reserve(text.size() + 16);
    for (const Point& point : points) {
        append_utf8(out, point.point);
        if (places != nullptr) places->resize(out.size(), point.place);
    }
    return out;
}

}  // namespace dslaunch::text
