// The parts of a Tokenizer, for its own source files only.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "text/subword/subword_model.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder_stage.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/piece_cache.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace dslaunch::text {

// The memory of one call of encode(), which later calls reuse.
struct EncodeScratch {
    SplitText pieces;
    ModelScratch model;
    PieceCache cache;
    NormalText normal;
    std::vector<TextPart> parts;
    std::vector<TextPart> normal_parts;
    std::vector<int32_t> ids;
    std::string_view original;     // the whole text
    bool wants_spans = false;      // the caller wants the spans of `ids`
    std::vector<TokenSpan> spans;  // if wanted, one for each of `ids`
    size_t bytes_left = 0;         // bytes that the parts of a text may still need, in total
};

// The scratch memories that no call uses at the moment. Their number is at most the largest number
// of calls that ran at the same time.
class ScratchPool {
  public:
    // Returns a memory for one call. The call gives it back when it ends.
    [[nodiscard]] std::unique_ptr<EncodeScratch> take() {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return std::make_unique<EncodeScratch>();
        std::unique_ptr<EncodeScratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
    }
    // Takes SCRATCH back, unless a long text has made it large.
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

// Everything that is read from a tokenizer.json. Later, only the pool of scratch memories changes.
struct TokenizerParts {
    explicit TokenizerParts(const JsonPlace& place);

    // Appends the tokens of TEXT to SCRATCH, and their spans if SCRATCH.wants_spans is true. Does
    // not add the tokens of the post-processor. REQUIRES: valid UTF-8.
    void encode_text(std::string_view text, EncodeScratch& scratch) const;
    // Returns the text that the decoder receives for ID, or nothing if there is none.
    [[nodiscard]] std::optional<std::string_view> text_of(int32_t id) const;
    // Appends to OUT the text that the token ID makes final in RUN. Throws Error{kInput} if ID is
    // below 0.
    void decode(int32_t id, bool skip_special, DecoderRun& run, std::string& out) const;

    std::vector<std::unique_ptr<const Normalizer>> normalizers;
    PreTokenizers pre_tokenizers;
    std::unique_ptr<const SubwordModel> model;
    AddedTokens added;
    std::unique_ptr<const TokenFinder> finder;         // for the text before it is normalized
    std::unique_ptr<const TokenFinder> normal_finder;  // for normalized text
    std::vector<PostPart> post_parts;
    DecoderStages decoder;
    std::vector<bool> specials;  // by number
    mutable ScratchPool pool;

  private:
    void refuse_growth_of_text(const JsonPlace& place) const;
    void encode_plain(TextPart part, EncodeScratch& scratch) const;
    void encode_normal(TextPart part, EncodeScratch& scratch) const;
    void encode_piece(PieceRange piece, EncodeScratch& scratch) const;
    void encode_words(PieceRange piece, EncodeScratch& scratch) const;
};

}  // namespace dslaunch::text
