// The score that a model gives to texts: the negative logarithm of the probability of each target.
// Data path: rows, choices -> [here] -> decoder -> loss, perplexity, accuracy. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decoder/decode/batch.h"
#include "text/rows/row_packer.h"

namespace dslaunch::decoder {

// The target that the model is not asked for.
inline constexpr int32_t kNoTarget = text::kNotLearned;

struct TextScore {
    double loss = 0;        // sum over the targets that count, in nats
    int64_t targets = 0;    // that count
    int64_t likeliest = 0;  // of them, those that were the likeliest token

    TextScore& operator+=(const TextScore& other);
};

struct ScoreOptions {
    // The number of tokens at the beginning that are the same as in the call before and are not
    // computed again.
    int64_t known = 0;
    // The positions that the text counts as having; models of long contexts choose their rotary
    // factors by it. 0: as many as it has tokens.
    int64_t length = 0;
};

class TextScorer {
  public:
    // RUNNER must outlive this; nobody else uses its cache meanwhile.
    explicit TextScorer(StepRunner& runner) : runner_(runner) {}

    // TARGETS[i] is the token that should follow TOKENS[0..i], or kNoTarget. Throws Error{kInput}
    // for a text beyond the context or the cache, for tokens outside the vocabulary, and for logits
    // that are not finite: no score is NaN. REQUIRES: as many targets as tokens, at least one; no
    // target of the known tokens counts, and a token follows them.
    [[nodiscard]] TextScore score(std::span<const int32_t> tokens, std::span<const int32_t> targets,
                                  const ScoreOptions& options = {});

  private:
    void check(std::span<const int32_t> tokens, std::span<const int32_t> targets) const;

    StepRunner& runner_;
};

}  // namespace dslaunch::decoder
