// Scores texts with a model: the score of a target is the negative logarithm of its probability.
// Data path: rows, choices -> [here] -> decoder -> loss, perplexity, accuracy. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "decoder/decode/batch.h"
#include "text/rows/row_packer.h"

namespace dslaunch::decoder {

// A target that is not scored.
inline constexpr int32_t kNoTarget = text::kNotLearned;

// The score of one text, or the sum over several.
struct TextScore {
    double loss = 0;        // sum over the targets that are scored, in nats
    int64_t targets = 0;    // targets that are scored
    int64_t likeliest = 0;  // scored targets that were the likeliest token

    TextScore& operator+=(const TextScore& other);  // adds each field
};

// Facts about a text that the caller knows.
struct ScoreOptions {
    // The number of tokens at the beginning that are the same as in the previous call, and are not
    // computed again.
    int64_t known = 0;
    // The length of the text, by which models of long contexts choose their rotary factors. If it
    // is 0, the number of the text's tokens is used.
    int64_t length = 0;
};

// A scorer, which scores one text after the other.
class TextScorer {
  public:
    // RUNNER must outlive this object, and nobody else may use its cache meanwhile.
    explicit TextScorer(BatchRunner& runner) : runner_(runner) {}

    // Returns the score of a text. TARGETS[i] is the token that should follow TOKENS[0..i], or
    // kNoTarget. Throws Error{kInput} for a text that is longer than the context or the cache, for
    // tokens outside the vocabulary, and for logits that are not finite, so that no score is NaN.
    // REQUIRES: TARGETS and TOKENS have the same size. At least one token follows the known tokens.
    // The targets of the known tokens are kNoTarget.
    [[nodiscard]] TextScore score(std::span<const int32_t> tokens, std::span<const int32_t> targets,
                                  const ScoreOptions& options = {});

  private:
    void check(std::span<const int32_t> tokens, std::span<const int32_t> targets) const;

    BatchRunner& runner_;
};

}  // namespace dslaunch::decoder
