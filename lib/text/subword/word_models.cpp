// The models whose pieces are words: WordPiece takes the longest token again and again, and
// WordLevel knows whole words only.
#include "base/error.h"
#include "base/text.h"
#include "text/subword/growth.h"
#include "text/subword/subword_model.h"
#include "text/subword/token_trie.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

[[noreturn]] void fail_unknown(std::string_view piece, const std::string& unknown) {
    fail(ExitCode::kInput,
         "the model has no token for '{}' and its unk_token '{}' is not in its vocabulary",
         printable(piece.substr(0, 80)), printable(unknown));
}

using Tokens = std::vector<std::pair<std::string, int32_t>>;

// Returns the tokens that begin with PREFIX, without this prefix.
Tokens tokens_after(const Vocabulary& vocabulary, std::string_view prefix) {
    Tokens tokens;
    for (int64_t id = 0; id < vocabulary.ids_end(); ++id) {
        const auto text = vocabulary.text_of(static_cast<int32_t>(id));
        if (text && text->starts_with(prefix))
            tokens.emplace_back(text->substr(prefix.size()), static_cast<int32_t>(id));
    }
    return tokens;
}

class WordPiece : public SubwordModel {
  public:
    WordPiece(Vocabulary vocabulary, std::string unknown, std::string_view prefix,
              size_t characters_max)
        : vocabulary_(std::move(vocabulary)),
          first_(tokens_after(vocabulary_, "")),
          later_(tokens_after(vocabulary_, prefix)),
          unknown_text_(std::move(unknown)),
          unknown_(vocabulary_.find(unknown_text_)),
          characters_max_(characters_max) {}

    [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

    void encode(std::string_view piece, ModelScratch& scratch,
                std::vector<int32_t>& out) const override {
        const size_t before = out.size();
        scratch.ends.clear();
        bool is_known = characters_in(piece) <= characters_max_;
        for (size_t i = 0; is_known && i < piece.size();) {
            const TokenTrie::Found found = (i == 0 ? first_ : later_).longest(piece.substr(i));
            is_known = found.id != kNoToken;
            if (is_known) out.push_back(found.id);
            i += found.length;
            scratch.ends.push_back(static_cast<uint32_t>(i));
        }
        if (is_known) return;
        out.resize(before);
        if (unknown_ == kNoToken) fail_unknown(piece, unknown_text_);
        out.push_back(unknown_);
        scratch.ends.assign(1, static_cast<uint32_t>(piece.size()));
    }

  private:
    static size_t characters_in(std::string_view text) {
        size_t count = 0;
        for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        return count;
    }

    Vocabulary vocabulary_;
    TokenTrie first_;
    TokenTrie later_;
    std::string unknown_text_;
    int32_t unknown_;
    size_t characters_max_;
};

class WordLevel : public SubwordModel {
  public:
    WordLevel(Vocabulary vocabulary, std::string unknown)
        : vocabulary_(std::move(vocabulary)),
          unknown_text_(std::move(unknown)),
          unknown_(vocabulary_.find(unknown_text_)) {}

    [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

    void encode(std::string_view piece, ModelScratch& scratch,
                std::vector<int32_t>& out) const override {
        int32_t id = vocabulary_.find(piece);
        if (id == kNoToken) id = unknown_;
        if (id == kNoToken) fail_unknown(piece, unknown_text_);
        out.push_back(id);
        scratch.ends.assign(1, static_cast<uint32_t>(piece.size()));
    }

  private:
    Vocabulary vocabulary_;
    std::string unknown_text_;
    int32_t unknown_;
};

}  // namespace

std::unique_ptr<const SubwordModel> read_word_piece(const JsonPlace& place) {
    place.expect_object(
        {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    const int64_t characters_max = place.at("max_input_chars_per_word").integer();
    if (characters_max < 0) place.at("max_input_chars_per_word").refuse("must be at least 0");
    Vocabulary vocabulary = read_vocabulary(place);
    for (int64_t id = 0; id < vocabulary.ids_end(); ++id)
        if (const auto text = vocabulary.text_of(static_cast<int32_t>(id));
            text && text->size() > kTokenBytesMax)
            place.at("vocab").refuse(
                fmt::format("token {} has {} bytes, but at most {} are supported", id, text->size(),
                            kTokenBytesMax));
    return std::make_unique<WordPiece>(std::move(vocabulary), place.at("unk_token").text(),
                                       short_text(place.at("continuing_subword_prefix")),
                                       static_cast<size_t>(characters_max));
}

std::unique_ptr<const SubwordModel> read_word_level(const JsonPlace& place) {
    place.expect_object({"type", "unk_token", "vocab"});
    return std::make_unique<WordLevel>(read_vocabulary(place), place.at("unk_token").text());
}

}  // namespace dslaunch::text
