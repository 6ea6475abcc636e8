// Whether tokens can be the model's tokenizer's: bytes, or a small vocabulary's, are all among the
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

    // Returns false once nothing can be wrong: a small vocabulary, or TOKEN is not one of the
    // smallest. Others need not be added then.
    bool add(int64_t token);

    // Returns the warning for what was added, that another tokenizer has made it; empty: it may be
    // the model's own. Texts of a few signs alone (sums, moves, bases) have small tokens too, and
    // are not taken for other tokenizers'.
    [[nodiscard]] std::string foreign_text() const;

  private:
    [[nodiscard]] bool look_like_bytes() const;

    int64_t vocabulary_;
    std::vector<int64_t> counts_;  // of each of the smallest tokens; empty: nothing can be wrong
    int64_t added_ = 0;
};

// Returns the warning for the tokens of FILE; empty: none. Reads the file until a larger token.
[[nodiscard]] std::string foreign_text(const TokenFile& file, int64_t vocabulary);

}  // namespace dslaunch::storage
