// The conversion of text to token numbers and back, as a tokenizer.json of Hugging Face describes
// it, with the same numbers as the Python package `tokenizers`. When the file is read, parts that
// this version does not support are refused, even if the package supports them. Several threads may
// use one Tokenizer at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/aligned_text.h"

namespace dslaunch::text {

struct TokenizerParts;

// The choices of one call of encode().
struct EncodeOptions {
    bool add_special_tokens = true;  // the post-processor adds its tokens
};

// The tokens of a text, and where they are in it.
struct EncodedText {
    std::vector<int32_t> ids;
    std::vector<TokenSpan> spans;  // one for each of `ids`
};

// A tokenizer that is read from a file. It can be moved, not copied.
class Tokenizer {
  public:
    // Reads the tokenizer.json at PATH. Throws Error{kInput} with PATH, the place in the document
    // and what to do. The sections `truncation` and `padding` are ignored, because dslaunch does
    // both itself.
    [[nodiscard]] static Tokenizer load(const std::string& path);
    // Reads the tokenizer.json in FOLDER like load(), and makes the changes that FOLDER's
    // tokenizer_config.json and config.json require (base/text/tokenizer_class.h).
    [[nodiscard]] static Tokenizer of_folder(const std::string& folder);
    // Reads a tokenizer.json whose contents are TEXT. Error messages contain NAME instead of a
    // path.
    [[nodiscard]] static Tokenizer parse(std::string_view text, const std::string& name);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Returns the tokens of TEXT. Bytes that are not UTF-8 become U+FFFD, as with Python's
    // errors="replace". Throws Error{kInput} if TEXT has 2 GiB or more, if the model has no token
    // for a part of it, or if a pattern takes too long.
    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              EncodeOptions options = {}) const;
    // Returns the same tokens as encode(), and the span of each token. The span covers each
    // character that has a byte in the token, so several tokens for one character have equal spans.
    // If a normalizer puts a mark before a text, the mark belongs to the first character. Dropped
    // characters belong to no token. Tokens that are added around the text have empty spans.
    // REQUIRES: valid UTF-8.
    [[nodiscard]] EncodedText encode_spans(std::string_view text, EncodeOptions options = {}) const;
    // Does the same as encode(), but appends the tokens to OUT, to save an allocation for each
    // text.
    void encode_to(std::string_view text, EncodeOptions options, std::vector<int32_t>& out) const;

    // Returns the text of IDS, which is valid UTF-8. Numbers that are not tokens are skipped, as in
    // the package. Throws Error{kInput} if a number is below 0.
    [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

    // Returns the largest token number + 1, which is the number of rows that an embedding needs.
    [[nodiscard]] int64_t ids_end() const;
    // Return the number, or the text, of a token. Return nothing if there is no such token.
    [[nodiscard]] std::optional<int32_t> id_of(std::string_view token) const;
    [[nodiscard]] std::optional<std::string> token_of(int32_t id) const;
    [[nodiscard]] bool is_special(int32_t id) const;

  private:
    friend class TokenStream;
    void encode_into(std::string_view text, EncodeOptions options, std::vector<int32_t>& out,
                     std::vector<TokenSpan>* spans) const;
    explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);

    std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace dslaunch::text
