// Pairs of answers to one prompt as two rows of one length. Data path: encode_sample.h, for each
// side -> [here] -> a file of rows. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>

#include "text/rows/row_packer.h"

namespace dslaunch::text {

struct PairRules {
    int64_t length = 0;  // of a row
    // A pair with a longer text is left out; else its texts lose their end.
    bool drops_long = false;
    int32_t padding = 0;  // the token after the end of a text
};

struct PairCounts {
    int64_t pairs = 0;                // made
    int64_t cut = 0, dropped = 0;     // pairs with a text longer than a row
    int64_t unanswered = 0;           // left out: of an answer, nothing is left in its row
    int64_t equal = 0;                // made, of two texts that are the same
    int64_t added = 0, too_long = 0;  // pairs; those with a text longer than a row
    int64_t longest = 0;              // tokens of the longest text
    int64_t tokens = 0, learned = 0;  // in rows, without padding; targets that count
};

class PairMaker {
  public:
    using Use = std::function<void(const TokenRow& chosen, const TokenRow& rejected)>;
    // USE gets each pair as it is made. REQUIRES: rules.length > 0.
    PairMaker(PairRules rules, Use use) : rules_(rules), use_(std::move(use)) {}

    // REQUIRES: at least two tokens each.
    void add(const TokenDocument& chosen, const TokenDocument& rejected);

    [[nodiscard]] const PairCounts& counts() const { return counts_; }

  private:
    PairRules rules_;
    Use use_;
    PairCounts counts_;
};

}  // namespace dslaunch::text
