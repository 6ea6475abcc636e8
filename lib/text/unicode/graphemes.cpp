#include "text/unicode/graphemes.h"

#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr char32_t kFirstSyllable = 0xAC00;
constexpr char32_t kTailSyllables = 28;

// The state of a cluster that is being read, as far as the rules need it.
struct Walk {
    Cluster last = Cluster::kAny;
    bool last_is_open = false;        // a syllable without a tail (LV)
    bool ends_odd_regionals = false;  // an odd number of regional indicators
    bool ends_emoji = false;          // a pictographic character and Extend*
    bool ends_joined_emoji = false;   // a pictographic character, Extend*, then a joiner
    bool has_consonant = false;       // a consonant, then only linkers and InCB=Extend
    bool has_linker = false;          // a linker follows this consonant

    void take(char32_t point, uint32_t flags) {
        const Cluster next = cluster_in(flags);
        ends_joined_emoji = next == Cluster::kJoiner && ends_emoji;
        ends_emoji = next == Cluster::kPictographic || (next == Cluster::kExtend && ends_emoji);
        ends_odd_regionals = next == Cluster::kRegional && !ends_odd_regionals;
        if (next == Cluster::kConsonant) {
            has_consonant = true;
            has_linker = false;
        } else if (flags & kLinkerFlag) {
            has_linker = has_consonant;
        } else if (!(flags & kClusterExtendFlag)) {
            has_consonant = has_linker = false;
        }
        last = next;
        last_is_open = next == Cluster::kLVT && (point - kFirstSyllable) % kTailSyllables == 0;
    }

    // Returns false if a cluster ends before NEXT.
    [[nodiscard]] bool goes_on(Cluster next) const {
        using enum Cluster;
        if (last == kCr && next == kLf) return true;
        if (last == kControl || last == kCr || last == kLf) return false;
        if (next == kControl || next == kCr || next == kLf) return false;
        if (last == kL && (next == kL || next == kV || next == kLVT)) return true;
        if ((last_is_open || last == kV) && (next == kV || next == kT)) return true;
        if ((last == kLVT || last == kT) && next == kT) return true;
        if (next == kExtend || next == kJoiner || next == kSpacingMark) return true;
        if (last == kPrepend) return true;
        if (next == kConsonant) return has_linker;
        if (next == kPictographic) return ends_joined_emoji;
        return next == kRegional && ends_odd_regionals;
    }
};

}  // namespace

size_t grapheme_end(std::string_view text, size_t begin) {
    const CodePoints& points = CodePoints::table();
    Walk walk;
    for (size_t i = begin; i < text.size();) {
        size_t end = i;
        const char32_t point = next_point(text, end);
        const uint32_t flags = points.flags(point);
        if (i != begin && !walk.goes_on(cluster_in(flags))) return i;
        walk.take(point, flags);
        i = end;
    }
    return text.size();
}

}  // namespace dslaunch::text
