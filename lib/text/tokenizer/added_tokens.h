// The `added_tokens` of a tokenizer.json. Some of these tokens are looked for in the original text,
// the others in the normalized text. Built once, then only read: any threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text/json_place.h"
#include "text/subword/token_trie.h"
#include "text/subword/vocabulary.h"
#include "text/tokenizer/normalizer.h"

namespace dslaunch::text {

// A token of the list `added_tokens`, with the fields that the file gives it.
struct AddedToken {
    std::string text;
    std::string normal;  // its form in normalized text; `text` if is_normalized is false
    int32_t id = kNoToken;
    bool is_single_word = false;
    bool strips_left = false;
    bool strips_right = false;
    bool is_normalized = false;
    bool is_special = false;
};

// A part of a text. If it is an added token, `id` is its number.
struct TextPart {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = kNoToken;
};

// Finds the longest token at each place, from left to right.
class TokenFinder {
  public:
    // TOKENS must outlive the finder. If NORMALIZED is false, the finder looks for the tokens that
    // are matched in the original text. If NORMALIZED is true, it looks for the other tokens: for
    // their normal forms in normalized text.
    TokenFinder(const std::vector<AddedToken>& tokens, bool normalized);
    // Appends the parts of TEXT; no part is empty.
    void split(std::string_view text, std::vector<TextPart>& parts) const;

  private:
    const std::vector<AddedToken>* tokens_;
    TokenTrie trie_;  // ids are indices in `tokens_`
    std::array<bool, 256> begins_{};
    bool is_empty_ = true;
};

// The tokens of the list `added_tokens`. They can be found by text or by number.
class AddedTokens {
  public:
    // Reads the list at PLACE, and gives each token the number that the Python package would give
    // it. Throws Error{kInput} that names the place if the list is invalid, or if the file gives a
    // token a different number.
    AddedTokens(const JsonPlace& place, const Vocabulary& vocabulary,
                const std::vector<std::unique_ptr<const Normalizer>>& normalizers);
    AddedTokens() = default;

    // Return the added token, or null if there is no such token.
    [[nodiscard]] const AddedToken* find(std::string_view text) const;
    [[nodiscard]] const AddedToken* find(int32_t id) const;
    // Returns true if TEXT is the text of a special token.
    [[nodiscard]] bool is_special(std::string_view text) const {
        return specials_.contains(std::string(text));
    }
    // Returns all tokens, in the order of the file.
    [[nodiscard]] const std::vector<AddedToken>& all() const { return tokens_; }

  private:
    std::vector<AddedToken> tokens_;  // in the order of the file, each text once
    std::unordered_map<std::string, size_t> by_text_;
    std::unordered_map<int32_t, size_t> by_id_;
    std::unordered_set<std::string> specials_;
};

}  // namespace dslaunch::text
