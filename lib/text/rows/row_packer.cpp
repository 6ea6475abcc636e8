#include "text/rows/row_packer.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::text {

namespace {

constexpr size_t kOpenRowsMax = 64;

}  // namespace

int64_t append_part(TokenRow& row, const TokenDocument& document, const DocumentPart& part) {
    int64_t learned = 0;
    for (size_t i = part.begin; i < part.end; ++i) {
        const bool counts = i + 1 < part.end && document.is_learned[i + 1];
        row.tokens.push_back(document.tokens[i]);
        row.targets.push_back(counts ? document.tokens[i + 1] : kNotLearned);
        row.documents.push_back(part.number);
        learned += counts ? 1 : 0;
    }
    return learned;
}

void fill_up(TokenRow& row, size_t length, const Filling& filling) {
    row.tokens.resize(length, filling.token);
    row.targets.resize(length, kNotLearned);
    row.documents.resize(length, filling.number);
}

void RowPacker::add(const TokenDocument& document) {
    const size_t length = document.tokens.size();
    DSL_CHECK(length >= 2 && document.is_learned.size() == length && rules_.length > 0,
              "a document has {} tokens, but needs at least 2", length);
    ++counts_.documents;
    counts_.longest = std::max(counts_.longest, static_cast<int64_t>(length));
    const auto row = static_cast<size_t>(rules_.length);
    if (length <= row) return add_piece(document, 0, length);
    switch (rules_.long_documents) {
        case LongDocuments::kSplit:
            ++counts_.split;
            // The last token of a piece is also the first token of the next piece, so that each
            // token is learned once.
            for (size_t begin = 0; begin + 1 < length; begin += row - 1)
                add_piece(document, begin, std::min(begin + row, length));
            return;
        case LongDocuments::kCut:
            ++counts_.cut;
            return add_piece(document, 0, row);
        case LongDocuments::kDrop:
            ++counts_.dropped;
            return;
    }
}

// Adds the piece to the fullest open row that has room, or opens a new row.
void RowPacker::add_piece(const TokenDocument& document, size_t begin, size_t end) {
    const size_t length = end - begin, row = static_cast<size_t>(rules_.length);
    auto best = open_.end();
    for (auto at = open_.begin(); at != open_.end(); ++at) {
        const size_t filled = at->row.tokens.size();
        if (filled + length > row) continue;
        if (best == open_.end() || filled > best->row.tokens.size()) best = at;
    }
    if (best == open_.end()) {
        open_.emplace_back();
        best = std::prev(open_.end());
    }
    TokenRow& into = best->row;
    counts_.learned += append_part(into, document, {begin, end, best->documents});
    counts_.tokens += static_cast<int64_t>(length);
    ++best->documents;
    if (!rules_.packs || into.tokens.size() == row) return close(best);
    if (open_.size() > kOpenRowsMax)
        close(std::ranges::max_element(open_, {},
                                       [](const OpenRow& open) { return open.row.tokens.size(); }));
}

void RowPacker::close(std::list<OpenRow>::iterator at) {
    const auto row = static_cast<size_t>(rules_.length);
    const auto counts = [](int32_t target) { return target != kNotLearned; };
    if (std::ranges::none_of(at->row.targets, counts)) {
        // A row without targets is dropped, because its mean loss would not be a number.
        ++counts_.unlearned_rows;
        counts_.tokens -= std::ssize(at->row.tokens);
        open_.erase(at);
        return;
    }
    fill_up(at->row, row, {rules_.padding, at->documents});
    ++counts_.rows;
    use_(at->row);
    open_.erase(at);
}

void RowPacker::finish() {
    while (!open_.empty()) close(open_.begin());
}

}  // namespace dslaunch::text
