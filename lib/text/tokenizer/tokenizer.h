// Text to the numbers of tokens and back, as a tokenizer.json of Hugging Face says, number for
// number as the Python package `tokenizers` does it. When the file is read, parts that the package
// knows and this version lacks are refused. Threads: const, any; several share one Tokenizer.
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

struct EncodeOptions {
    bool add_special_tokens = true;  // the post-processor adds its tokens
};

struct EncodedText {
    std::vector<int32_t> ids;
    std::vector<TokenSpan> spans;  // one for each of `ids`
};

class Tokenizer {
  public:
    // Throws Error{kInput} with PATH, the place in the document and what to do. The sections
    // `truncation` and `padding` are not looked at: both are ours.
    [[nodiscard]] static Tokenizer load(const std::string& path);
    // Does the same for FOLDER's tokenizer.json, with the changes of its tokenizer_config.json and
    // config.json (subword/tokenizer_class.h).
    [[nodiscard]] static Tokenizer of_folder(const std::string& folder);
    // Does the same for TEXT; NAME stands for the path in messages.
    [[nodiscard]] static Tokenizer parse(std::string_view text, const std::string& name);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // Returns the tokens of TEXT. Bytes that are not UTF-8 are U+FFFD, as Python's
    // errors="replace". Throws Error{kInput} on 2 GiB and more, where the model has no token for a
    // part of it, and where a pattern takes too long.
    [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                              EncodeOptions options = {}) const;
    // Does the same with each token's span of whole characters, of which it has any byte. So
    // the tokens of one character have equal spans, a normalizer's mark before a text belongs to
    // the first character, and dropped characters belong to no token. Tokens around the text have
    // empty spans. REQUIRES: valid UTF-8.
    [[nodiscard]] EncodedText encode_spans(std::string_view text, EncodeOptions options = {}) const;
    // Appends the tokens to OUT, which saves an allocation for each text.
    void encode_to(std::string_view text, EncodeOptions options, std::vector<int32_t>& out) const;

    // Returns the text of IDS, valid UTF-8. Numbers of no token are passed over, as the package
    // does. Throws Error{kInput} on one below 0.
    [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

    // Returns the number of tokens, with the added ones.
    [[nodiscard]] int64_t vocab_size() const;
    // Returns one more than the largest number: the rows that an embedding needs.
    [[nodiscard]] int64_t ids_end() const;
    // Return nothing if there is no such token.
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
