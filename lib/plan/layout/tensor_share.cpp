#include "plan/layout/tensor_share.h"

#include "base/check.h"

namespace dslaunch::plan {

TensorShare::TensorShare(const TensorParameter& parameter, PartOf part) {
    DSL_CHECK(parameter.rule != TensorRule::kReplicated, "{} cannot be split", parameter.name);
    const auto dim = static_cast<size_t>(parameter.shard.dim);
    int64_t inner = 1;
    for (size_t d = 0; d < parameter.sizes.size(); ++d) {
        if (d < dim) outer_ *= parameter.sizes[d];
        if (d > dim) inner *= parameter.sizes[d];
    }
    whole_row_ = parameter.sizes[dim] * inner;
    for (const Range& range : shard_ranges(parameter.shard, part)) {
        const Range in_whole{range.begin * inner, range.numel * inner};
        const bool joins = !pieces_.empty() && pieces_.back().in_whole.end() == in_whole.begin;
        if (joins) {
            pieces_.back().in_whole.numel += in_whole.numel;
        } else {
            pieces_.push_back({share_row_, in_whole});
        }
        share_row_ += in_whole.numel;
    }
}

void TensorShare::for_each(const Range& elements, const Use& use) const {
    DSL_CHECK(elements.begin >= 0 && elements.end() <= numel(),
              "elements [{}, {}) lie outside a share of {}", elements.begin, elements.end(),
              numel());
    int64_t begin = elements.begin;
    Range found;  // not given to USE yet: the next piece may continue it
    const auto give = [&] {
        if (found.numel > 0) use(begin - found.numel, found);
    };
    while (begin < elements.end()) {
        const int64_t row = begin / share_row_;
        for (const Piece& piece : pieces_) {
            const Range in_share{row * share_row_ + piece.begin, piece.in_whole.numel};
            const Range wanted = intersect(in_share, {begin, elements.end() - begin});
            if (wanted.numel == 0) continue;
            const Range next{
                row * whole_row_ + piece.in_whole.begin + wanted.begin - in_share.begin,
                wanted.numel};
            if (found.numel > 0 && found.end() == next.begin) {
                found.numel += next.numel;
            } else {
                give();
                found = next;
            }
            begin = wanted.end();
        }
    }
    give();
}

}  // namespace dslaunch::plan
