// Text to tokens: added tokens are cut out, the rest is normalized, cut into pieces, and each piece
// is given to the model unless it came before.
#include <algorithm>

#include "tokens/model/growth.h"
#include "tokens/tokenizer/pre_tokenizer.h"
#include "tokens/tokenizer/tokenizer_parts.h"

namespace dslaunch::tokens {
namespace {

constexpr std::string_view kWordMark = "\u2581";

}  // namespace

void TokenizerParts::encode_text(std::string_view text, EncodeScratch& scratch) const {
    scratch.parts.clear();
    scratch.bytes_left = grown_max(text.size());
    finder->split(text, scratch.parts);
    for (const TextPart& part : scratch.parts) {
        if (part.id != kNoToken) {
            scratch.ids.push_back(part.id);
        } else {
            encode_plain(text.substr(part.begin, part.end - part.begin), part.begin == 0, scratch);
        }
    }
}

void TokenizerParts::encode_plain(std::string_view text, bool at_origin,
                                  EncodeScratch& scratch) const {
    size_t origin_bytes = at_origin ? 1 : 0;
    if (!normalizers.empty()) {
        scratch.normal = normal_text(text, scratch.bytes_left);
        for (const auto& step : normalizers) step->apply(scratch.normal);
        text = scratch.normal.text;
        scratch.bytes_left -= std::min(scratch.bytes_left, text.size());
        if (at_origin) origin_bytes = scratch.normal.origin_bytes;
    }
    scratch.normal_parts.clear();
    normal_finder->split(text, scratch.normal_parts);
    for (const TextPart& part : scratch.normal_parts) {
        if (part.id != kNoToken) {
            scratch.ids.push_back(part.id);
        } else {
            encode_normal(text.substr(part.begin, part.end - part.begin), part.begin < origin_bytes,
                          scratch);
        }
    }
}

void TokenizerParts::encode_normal(std::string_view text, bool at_origin,
                                   EncodeScratch& scratch) const {
    Pieces& pieces = scratch.pieces;
    pieces.text = text;
    pieces.list.assign(1, {0, static_cast<uint32_t>(text.size()), at_origin});
    pieces.bytes_max = std::max(scratch.bytes_left, text.size());
    for (const auto& step : pre_tokenizers.steps) step->apply(pieces);
    scratch.bytes_left -= std::min(scratch.bytes_left, pieces.text.size());
    const bool cuts = model->may_cut_words();
    for (const Piece& piece : pieces.list) {
        if (cuts) {
            encode_words(pieces.text, piece, scratch);
        } else {
            encode_piece(pieces.text, piece, scratch);
        }
    }
}

void TokenizerParts::encode_words(std::string_view text, Piece piece,
                                  EncodeScratch& scratch) const {
    uint32_t begin = piece.begin;
    const std::string_view within = text.substr(0, piece.end);
    size_t last = begin;  // behind the last mark
    for (size_t at = within.find(kWordMark, begin); at != std::string_view::npos;
         at = within.find(kWordMark, last)) {
        if (at > begin && at != last) {
            encode_piece(text, {begin, static_cast<uint32_t>(at), false}, scratch);
            begin = static_cast<uint32_t>(at);
        }
        last = at + kWordMark.size();
    }
    if (begin < piece.end) encode_piece(text, {begin, piece.end, false}, scratch);
}

void TokenizerParts::encode_piece(std::string_view text, Piece piece,
                                  EncodeScratch& scratch) const {
    const std::string_view view = text.substr(piece.begin, piece.end - piece.begin);
    if (view.size() > PieceCache::kPieceBytesMax) {
        model->encode(view, scratch.model, scratch.ids);
        return;
    }
    const PieceCache::Key key = PieceCache::key_of(view, text.size() - piece.end);
    const PieceCache::Entry* entry = scratch.cache.find(key);
    if (entry) {
        scratch.ids.insert(scratch.ids.end(), entry->ids.begin(),
                           entry->ids.begin() + static_cast<std::ptrdiff_t>(entry->ids_count));
        return;
    }
    const size_t first = scratch.ids.size();
    model->encode(view, scratch.model, scratch.ids);
    scratch.cache.store(key, std::span(scratch.ids).subspan(first));
}

}  // namespace dslaunch::tokens
