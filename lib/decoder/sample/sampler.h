// Chooses the next token from a row of logits: the likeliest one, or a random one from the set that
// temperature, top-k, top-p and min-p leave. Data path: decoder -> [here] -> engine. The steps have
// the order of transformers' generate(): biases, penalties, bans, temperature, top-k, top-p, min-p.
// Pure except for the sampler's own random numbers; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace dslaunch::decoder {

// A bias that is added to the logit of the last token in `tokens` if the text ends with the other
// tokens in `tokens`.
struct TokenBias {
    std::vector<int32_t> tokens;  // at least one
    float bias = 0;
};

// Rules for single tokens, from generation_config.json and from `logit_bias` in a request.
struct TokenRules {
    std::vector<TokenBias> biases;
    std::vector<std::vector<int32_t>> bad_words;  // the last token of a list is not made directly
                                                  // after the list's other tokens
    std::vector<int32_t> suppressed;              // never made
    std::vector<int32_t> suppressed_first;        // not made as the first token
    int64_t ngram = 0;          // no sequence of this many tokens may occur twice; 0: no rule
    std::vector<int32_t> last;  // the token at the length limit is one of these; empty: any
};

// The rules by which a token is chosen, as a request gives them; Sampler checks the ranges.
struct SamplingOptions {
    double temperature = 0.8;       // divides the logits; 0: always the likeliest token
    int64_t top_k = 40;             // choose among the k likeliest only; 0: among all
    double top_p = 1;               // choose among the likeliest whose probabilities reach this sum
    double min_p = 0;               // drop tokens less likely than this times the likeliest
    double repetition_penalty = 1;  // applied to tokens that are in the text; 1: none
    double presence_penalty = 0;    // subtracted from the logit of a token that was made
    double frequency_penalty = 0;   // subtracted once for each time that the token was made
    int64_t tokens_min = 0;         // no end token before this many tokens are made
    int64_t length_min = 0;         // no end token before prompt and text have this many tokens
    uint64_t seed = 1;              // equal seeds give equal tokens on one machine
    std::shared_ptr<const TokenRules> rules = {};  // shared by the texts to which they apply
};

// The tokens that end a text, and its largest length.
struct TextBounds {
    std::vector<int32_t> end_tokens;
    std::optional<int64_t> tokens_max;
};

// A sampler, which chooses the tokens of one text.
class Sampler {
  public:
    // Throws Error{kUsage}, naming an option that is out of range.
    explicit Sampler(const SamplingOptions& options, TextBounds bounds = {});

    // Chooses the token that follows TEXT from LOGITS, and returns it. Changes LOGITS. SHAPE:
    // [vocabulary] fp32. If several tokens have the highest logit, the lowest token counts as the
    // likeliest. REQUIRES: LOGITS are not empty and are_finite(); TEXT ends with all tokens that
    // this sampler returned.
    [[nodiscard]] int32_t next(std::span<float> logits, std::span<const int32_t> text);

    // Returns the options that the constructor was given.
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
    int64_t made_ = 0;  // number of tokens that next() returned
    std::mt19937_64 random_;
    std::vector<Candidate> candidates_;  // sorted by likelihood after collect()
    std::vector<double> probabilities_;  // one for each candidate, not normalized
    std::vector<bool> penalized_;        // one for each token
};

// The message that is shown if logits are not finite.
inline constexpr const char* kBrokenLogits =
    "the model's logits are not finite numbers: its weights are damaged, its training has "
    "diverged, or --weights has too few bits for them";
// Returns true if no logit is infinite or NaN.
[[nodiscard]] bool are_finite(std::span<const float> logits);

// Returns the likeliest token of LOGITS, and the lowest one if several are equally likely.
// REQUIRES: not empty.
[[nodiscard]] int32_t likeliest(std::span<const float> logits);

}  // namespace dslaunch::decoder
