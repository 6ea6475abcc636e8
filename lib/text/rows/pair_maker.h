// Pairs of answers to one prompt, as two rows of the same length. Data path: encode_sample.h, for
// each side -> [here] -> a file of rows. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>

#include "text/rows/row_packer.h"

namespace dslaunch::text {

// The settings that all pairs of a file share.
struct PairRules {
    int64_t length = 0;  // of a row
    // If true, a pair with a text longer than a row is left out; if false, its texts are cut at
    // their ends.
    bool drops_long = false;
    int32_t padding = 0;  // the token after the end of a text
};

// Counts of all pairs so far: the pairs that were made, cut or left out, and the tokens of their
// rows.
struct PairCounts {
    int64_t pairs = 0;                // made
    int64_t cut = 0, dropped = 0;     // pairs with a text longer than a row
    int64_t unanswered = 0;           // left out: no token of an answer fits in its row
    int64_t equal = 0;                // made of two texts that are the same
    int64_t added = 0, too_long = 0;  // added: all pairs; too_long: pairs with a text over a row
    int64_t longest = 0;              // tokens of the longest text
    int64_t tokens = 0, learned = 0;  // tokens: without padding; learned: targets that count
};

// The maker of the rows of one file of pairs.
class PairMaker {
  public:
    using Use = std::function<void(const TokenRow& chosen, const TokenRow& rejected)>;
    // USE receives each pair when it is made. REQUIRES: rules.length > 0.
    PairMaker(PairRules rules, Use use) : rules_(rules), use_(std::move(use)) {}

    // REQUIRES: each document has at least two tokens.
    void add(const TokenDocument& chosen, const TokenDocument& rejected);

    // Returns the counts of all pairs that were added.
    [[nodiscard]] const PairCounts& counts() const { return counts_; }

  private:
    PairRules rules_;
    Use use_;
    PairCounts counts_;
};

}  // namespace dslaunch::text
