// The choice of the next token from a row of logits: the likeliest one, or a draw among those that
// temperature, top-k, top-p and min-p leave. Data path: decoder -> [here] -> engine. The steps have
// the order of transformers' generate(): biases, penalties, bans, temperature, top-k, top-p, min-p.
// Pure but for the sampler's own random numbers; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace dslaunch::decoder {

// A bias of the last of TOKENS' logit where the others stand right before it.
struct TokenBias {
    std::vector<int32_t> tokens;  // at least one
    float bias = 0;
};

// Rules for single tokens, from generation_config.json and from `logit_bias` of a request.
struct TokenRules {
    std::vector<TokenBias> biases;
    std::vector<std::vector<int32_t>> bad_words;  // the last token of each is not made after the
                                                  // others
    std::vector<int32_t> suppressed;              // never made
    std::vector<int32_t> suppressed_first;        // not made as the first token
    int64_t ngram = 0;          // as many tokens in a row stand in the text once; 0: any
    std::vector<int32_t> last;  // one of these is the token at the limit; empty: any
};

struct SamplingOptions {
    double temperature = 0.8;       // divides the logits; 0: always the likeliest token
    int64_t top_k = 40;             // draw among the k likeliest only; 0: among all
    double top_p = 1;               // draw among the likeliest whose probabilities reach this sum
    double min_p = 0;               // leave out tokens less likely than this part of the likeliest
    double repetition_penalty = 1;  // of tokens that stand in the text; 1: none
    double presence_penalty = 0;    // taken from the logit of a token that was made
    double frequency_penalty = 0;   // the same for each time that it was made
    int64_t tokens_min = 0;         // no end token before so many are made
    int64_t length_min = 0;         // nor before the text has so many, its prompt among them
    uint64_t seed = 1;              // equal seeds give equal tokens on one machine
    std::shared_ptr<const TokenRules> rules = {};  // shared by the texts that they are for
};

// The bounds of one text.
struct TextBounds {
    std::vector<int32_t> end_tokens;
    std::optional<int64_t> tokens_max;
};

class Sampler {
  public:
    // Throws Error{kUsage} naming the option that is out of range.
    explicit Sampler(const SamplingOptions& options, TextBounds bounds = {});

    // Returns the next token after TEXT, from its LOGITS. SHAPE: [vocabulary] fp32; they are
    // changed. The lowest of tokens with equal logits counts as the likeliest. REQUIRES: not empty,
    // are_finite(); TEXT ends with all tokens that this sampler gave.
    [[nodiscard]] int32_t next(std::span<float> logits, std::span<const int32_t> text);

    [[nodiscard]] const SamplingOptions& options() const { return options_; }

  private:
    struct Candidate {
        float logit = 0;
        int32_t token = 0;
    };
    void apply_rules(std::span<float> logits, std::span<const int32_t> text);
    void penalize(std::span<float> logits, std::span<const int32_t> text);
    void penalize_made(std::span<float> logits, std::span<const int32_t> made);
    void ban(std::span<float> logits, std::span<const int32_t> text) const;
    void collect(std::span<const float> logits);
    void keep_likely();
    [[nodiscard]] int32_t draw();

    SamplingOptions options_;
    TextBounds bounds_;
    int64_t made_ = 0;  // tokens that it gave
    std::mt19937_64 random_;
    std::vector<Candidate> candidates_;  // likeliest first once they are kept
    std::vector<double> probabilities_;  // of the candidates, without a common factor
    std::vector<bool> penalized_;        // by token
};

// The message for logits that are not finite.
inline constexpr const char* kBrokenLogits =
    "the model's logits are not finite numbers: its weights are damaged, its training has "
    "diverged, or --weights has too few bits for them";
[[nodiscard]] bool are_finite(std::span<const float> logits);

// Returns the likeliest token of LOGITS; the lowest one of several. REQUIRES: not empty.
[[nodiscard]] int32_t likeliest(std::span<const float> logits);

}  // namespace dslaunch::decoder
