// Judges if tokens can be the model's own: bytes, or a small vocabulary's tokens, are all among the
// smallest numbers of a large one. Data path: token file, rows -> [here] -> a warning. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/files/token_file.h"

namespace dslaunch::storage {

class TokenCounts {
  public:
    // VOCABULARY: the model's tokens.
    explicit TokenCounts(int64_t vocabulary);

    // Returns false once nothing can be wrong: for a small vocabulary, or if TOKEN is not one of
    // the smallest. No more tokens need to be added then.
    bool add(int64_t token);

    // Returns the warning that another tokenizer made the added tokens; empty: they may be the
    // model's own. Texts of a few signs alone (sums, moves, bases) have small tokens too, and are
    // not taken for another tokenizer's.
    [[nodiscard]] std::string foreign_text() const;

  private:
    [[nodiscard]] bool look_like_bytes() const;

    int64_t vocabulary_;
    std::vector<int64_t> counts_;  // of each of the smallest tokens; empty: nothing can be wrong
    int64_t added_ = 0;
};

// Returns the warning for the tokens of FILE; empty: none. Reads until the first larger token.
[[nodiscard]] std::string foreign_text(const TokenFile& file, int64_t vocabulary);

}  // namespace dslaunch::storage
