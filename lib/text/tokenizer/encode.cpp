// The encoding of text as tokens: added tokens are cut out, the rest is normalized and cut into
// pieces, and each piece is given to the model, unless its tokens are in the cache.
#include <algorithm>
#include <bit>
#include <span>

#include "text/subword/growth.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr std::string_view kWordMark = "\u2581";

// Appends the span that the bytes from BEGIN to END have in the original text. FROM contains the
// place in the original text for each byte.
void append_span(EncodeScratch& scratch, std::span<const uint32_t> from, size_t begin, size_t end) {
    if (!scratch.wants_spans) return;
    if (begin == end) return scratch.spans.push_back(scratch.spans.back());  // as the last token
    size_t end_bytes = from[end - 1];
    (void)next_point(scratch.original, end_bytes);
    scratch.spans.push_back({from[begin], static_cast<uint32_t>(end_bytes)});
}

}  // namespace

void TokenizerParts::encode_text(std::string_view text, EncodeScratch& scratch) const {
    scratch.original = text;
    scratch.spans.clear();
    scratch.parts.clear();
    scratch.bytes_left = grown_max(text.size());
    finder->split(text, scratch.parts);
    for (const TextPart& part : scratch.parts) {
        if (part.id == kNoToken) {
            encode_plain(part, scratch);
            continue;
        }
        scratch.ids.push_back(part.id);
        if (scratch.wants_spans)
            scratch.spans.push_back(
                {static_cast<uint32_t>(part.begin), static_cast<uint32_t>(part.end)});
    }
}

void TokenizerParts::encode_plain(TextPart part, EncodeScratch& scratch) const {
    scratch.normal = normal_text(scratch.original.substr(part.begin, part.end - part.begin),
                                 static_cast<uint32_t>(part.begin), scratch.bytes_left);
    for (const auto& step : normalizers) step->apply(scratch.normal);
    const std::string_view text = scratch.normal.text;
    if (!normalizers.empty()) scratch.bytes_left -= std::min(scratch.bytes_left, text.size());
    scratch.normal_parts.clear();
    normal_finder->split(text, scratch.normal_parts);
    for (const TextPart& normal_part : scratch.normal_parts) {
        if (normal_part.id == kNoToken) {
            encode_normal(normal_part, scratch);
            continue;
        }
        scratch.ids.push_back(normal_part.id);
        append_span(scratch, scratch.normal.from, normal_part.begin, normal_part.end);
    }
}

void TokenizerParts::encode_normal(TextPart part, EncodeScratch& scratch) const {
    const size_t length = part.end - part.begin;
    SplitText& pieces = scratch.pieces;
    pieces.begin(std::string_view(scratch.normal.text).substr(part.begin, length),
                 std::span<const uint32_t>(scratch.normal.from).subspan(part.begin, length),
                 std::max(scratch.bytes_left, length));
    for (const auto& step : pre_tokenizers.steps) step->apply(pieces);
    scratch.bytes_left -= std::min(scratch.bytes_left, pieces.text.size());
    const bool cuts = model->may_cut_words();
    for (const PieceRange& piece : pieces.list) {
        if (cuts) {
            encode_words(piece, scratch);
        } else {
            encode_piece(piece, scratch);
        }
    }
}

void TokenizerParts::encode_words(PieceRange piece, EncodeScratch& scratch) const {
    uint32_t begin = piece.begin;
    const std::string_view within = scratch.pieces.text.substr(0, piece.end);
    size_t last = begin;  // after the last mark
    for (size_t at = within.find(kWordMark, begin); at != std::string_view::npos;
         at = within.find(kWordMark, last)) {
        if (at > begin && at != last) {
            encode_piece({begin, static_cast<uint32_t>(at)}, scratch);
            begin = static_cast<uint32_t>(at);
        }
        last = at + kWordMark.size();
    }
    if (begin < piece.end) encode_piece({begin, piece.end}, scratch);
}

void TokenizerParts::encode_piece(PieceRange piece, EncodeScratch& scratch) const {
    const std::string_view text = scratch.pieces.text;
    const std::string_view view = text.substr(piece.begin, piece.end - piece.begin);
    const std::span<const uint32_t> from = scratch.pieces.from;
    const bool is_short = view.size() <= PieceCache::kPieceBytesMax;
    PieceCache::Key key;
    if (is_short) {
        key = PieceCache::key_of(view, text.size() - piece.end);
        if (const PieceCache::Entry* entry = scratch.cache.find(key)) {
            const std::span<const int32_t> ids = entry->tokens();
            scratch.ids.insert(scratch.ids.end(), ids.begin(), ids.end());
            uint32_t begin = 0;
            for (uint32_t left = scratch.wants_spans ? entry->ends : 0; left != 0;
                 left &= left - 1) {
                const auto end = static_cast<uint32_t>(std::countr_zero(left)) + 1;
                append_span(scratch, from, piece.begin + begin, piece.begin + end);
                begin = end;
            }
            return;
        }
    }
    const size_t first = scratch.ids.size();
    model->encode(view, scratch.model, scratch.ids);
    size_t begin = 0;
    for (const uint32_t end : scratch.model.ends) {
        append_span(scratch, from, piece.begin + begin, piece.begin + end);
        begin = end;
    }
    if (is_short)
        scratch.cache.store(key, std::span(scratch.ids).subspan(first), scratch.model.ends);
}

}  // namespace dslaunch::text
