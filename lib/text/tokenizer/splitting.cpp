#include "text/tokenizer/splitting.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace dslaunch::text {
namespace {

struct Span {
    uint32_t begin;
    uint32_t end;
    bool is_match;
};

// Calls USE(begin, end, is_match) for the matches and the gaps between them, from left to right.
template <typename Use>
void for_spans(const std::vector<Match>& matches, uint32_t length, const Use& use) {
    uint32_t last = 0;
    for (const Match& match : matches) {
        if (match.begin != last) use(last, match.begin, false);
        use(match.begin, match.end, true);
        last = match.end;
    }
    if (last != length) use(last, length, false);
}

std::vector<Span> spans_of(const std::vector<Match>& matches, uint32_t length, bool inverts) {
    std::vector<Span> spans;
    for_spans(matches, length, [&](uint32_t begin, uint32_t end, bool is_match) {
        spans.push_back({begin, end, is_match != inverts});
    });
    return spans;
}

// Joins neighbouring spans for which JOINS(last, next) is true. SPANS go from left to right, or
// from right to left.
template <typename Joins>
std::vector<Span> joined(const std::vector<Span>& spans, const Joins& joins) {
    std::vector<Span> out;
    bool last_is_match = false;
    for (const Span& span : spans) {
        if (!out.empty() && joins(last_is_match, span.is_match)) {
            out.back().begin = std::min(out.back().begin, span.begin);
            out.back().end = std::max(out.back().end, span.end);
        } else {
            out.push_back(span);
        }
        last_is_match = span.is_match;
    }
    return out;
}

std::vector<Span> merged(std::vector<Span> spans, Behavior behavior) {
    const auto match_joins = [](bool last, bool next) { return next && !last; };
    if (behavior == Behavior::kContiguous)
        return joined(spans, [](bool last, bool next) { return last == next; });
    if (behavior == Behavior::kMergedWithPrevious) return joined(spans, match_joins);
    std::reverse(spans.begin(), spans.end());
    spans = joined(spans, match_joins);
    std::reverse(spans.begin(), spans.end());
    return spans;
}

class SplitStep : public PreTokenizer {
  public:
    SplitStep(std::unique_ptr<const Pattern> pattern, Splitting splitting)
        : pattern_(std::move(pattern)), splitting_(splitting) {}
    void apply(SplitText& pieces) const override { split_pieces(pieces, *pattern_, splitting_); }

  private:
    std::unique_ptr<const Pattern> pattern_;
    Splitting splitting_;
};

}  // namespace

void split_pieces(SplitText& pieces, const Pattern& pattern, Splitting splitting) {
    std::vector<PieceRange>& out = pieces.spare_list;
    out.clear();
    for (const PieceRange& piece : pieces.list) {
        const auto add = [&](uint32_t begin, uint32_t end) {
            if (begin == end) return;
            out.push_back({piece.begin + begin, piece.begin + end});
        };
        const uint32_t length = piece.end - piece.begin;
        pieces.matches.clear();
        pattern.find_all(pieces.text.substr(piece.begin, length), pieces.matches);
        if (splitting.behavior == Behavior::kIsolated) {
            for_spans(pieces.matches, length,
                      [&](uint32_t begin, uint32_t end, bool) { add(begin, end); });
        } else if (splitting.behavior == Behavior::kRemoved) {
            for_spans(pieces.matches, length, [&](uint32_t begin, uint32_t end, bool is_match) {
                if (is_match == splitting.inverts) add(begin, end);
            });
        } else {
            for (const Span& span :
                 merged(spans_of(pieces.matches, length, splitting.inverts), splitting.behavior))
                add(span.begin, span.end);
        }
    }
    std::swap(pieces.list, pieces.spare_list);
}

Behavior read_behavior(const JsonPlace& place) {
    const std::string& name = place.text();
    if (name == "Removed" || name == "removed") return Behavior::kRemoved;
    if (name == "Isolated" || name == "isolated") return Behavior::kIsolated;
    if (name == "MergedWithPrevious" || name == "merged_with_previous")
        return Behavior::kMergedWithPrevious;
    if (name == "MergedWithNext" || name == "merged_with_next") return Behavior::kMergedWithNext;
    if (name == "Contiguous" || name == "contiguous") return Behavior::kContiguous;
    place.refuse(fmt::format("the behavior `{}` is not known to this version", printable(name)));
}

std::unique_ptr<const PreTokenizer> split_by(std::unique_ptr<const Pattern> pattern,
                                             Splitting splitting) {
    return std::make_unique<SplitStep>(std::move(pattern), splitting);
}

}  // namespace dslaunch::text
