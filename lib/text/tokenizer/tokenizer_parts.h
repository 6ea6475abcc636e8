// The parts of a Tokenizer, for its own sources.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "text/subword/model.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/piece_cache.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace dslaunch::text {

// The memory of one call of encode, which later calls use again.
struct EncodeScratch {
    Pieces pieces;
    ModelScratch model;
    PieceCache cache;
    NormalText normal;
    std::vector<TextPart> parts;
    std::vector<TextPart> normal_parts;
    std::vector<int32_t> ids;
    std::string_view original;     // the whole text
    bool wants_spans = false;      // of `ids` in it
    std::vector<TokenSpan> spans;  // if they are wanted, one for each of `ids`
    size_t bytes_left = 0;  // to which the parts of a text may still grow, all of them together
};

// Scratches that no call uses at the moment: as many as there ever were calls at once.
class ScratchPool {
  public:
    [[nodiscard]] std::unique_ptr<EncodeScratch> take() {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return std::make_unique<EncodeScratch>();
        std::unique_ptr<EncodeScratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
    }
    // Takes back a scratch, unless a long text made it large.
    void give_back(std::unique_ptr<EncodeScratch> scratch) {
        if (scratch->ids.capacity() > kKeptTokensMax || scratch->model.is_large()) return;
        const std::lock_guard lock(mutex_);
        free_.push_back(std::move(scratch));
    }

  private:
    static constexpr size_t kKeptTokensMax = size_t{1} << 20;

    std::mutex mutex_;
    std::vector<std::unique_ptr<EncodeScratch>> free_;
};

struct TokenizerParts {
    explicit TokenizerParts(const JsonPlace& place);

    // Appends the tokens of TEXT without the tokens around it, and their spans if they are wanted.
    // REQUIRES: valid UTF-8.
    void encode_text(std::string_view text, EncodeScratch& scratch) const;
    // Returns the text that the decoder gets for ID; nothing if there is none.
    [[nodiscard]] std::optional<std::string_view> text_of(int32_t id) const;
    // Appends to OUT the text that RUN decides with the token ID. Throws Error{kInput} below 0.
    void decode(int32_t id, bool skip_special, DecoderRun& run, std::string& out) const;

    std::vector<std::unique_ptr<const Normalizer>> normalizers;
    PreTokenizers pre_tokenizers;
    std::unique_ptr<const Model> model;
    AddedTokens added;
    std::unique_ptr<const TokenFinder> finder;         // in the text as it comes
    std::unique_ptr<const TokenFinder> normal_finder;  // in normalized text
    std::vector<PostPart> post_parts;
    DecoderStages decoder;
    std::vector<bool> specials;  // by number
    mutable ScratchPool pool;

  private:
    void refuse_explosions(const JsonPlace& place) const;
    void encode_plain(TextPart part, EncodeScratch& scratch) const;
    void encode_normal(TextPart part, EncodeScratch& scratch) const;
    void encode_piece(Piece piece, EncodeScratch& scratch) const;
    void encode_words(Piece piece, EncodeScratch& scratch) const;
};

}  // namespace dslaunch::text
