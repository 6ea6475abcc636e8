#include "decoder/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::decoder {

namespace {

void require(bool holds, const char* option, double given, const char* range) {
    if (!holds) fail(ExitCode::kUsage, "{} is {}, but must be {}", option, given, range);
}

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Adds BIAS to the logit of TOKEN; ignores a token outside the vocabulary, which is never made.
void add_bias(std::span<float> logits, int32_t token, float bias) {
    if (token >= 0 && token < std::ssize(logits)) logits[static_cast<size_t>(token)] += bias;
}

// Returns true if TEXT ends with all tokens of SEQUENCE except its last one.
bool comes_next(std::span<const int32_t> sequence, std::span<const int32_t> text) {
    const size_t before = sequence.size() - 1;
    if (before == 0) return true;
    return sequence.size() <= text.size() &&
           std::ranges::equal(text.last(before), sequence.first(before));
}

// Bans tokens that would complete a sequence of LENGTH tokens that TEXT contains already.
void ban_repeated(std::span<float> logits, std::span<const int32_t> text, size_t length) {
    if (length == 0 || text.size() < length) return;
    const auto begin = text.last(length - 1);
    for (size_t i = 0; i + length <= text.size(); ++i)
        if (std::ranges::equal(text.subspan(i, length - 1), begin))
            add_bias(logits, text[i + length - 1], kBanned);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, TextBounds bounds)
    : options_(options), bounds_(std::move(bounds)), random_(options.seed) {
    require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
            options.temperature, "0 or above");
    require(options.top_k >= 0, "top-k", static_cast<double>(options.top_k),
            "0 or above; 0 is off");
    require(options.top_p > 0 && options.top_p <= 1, "top-p", options.top_p,
            "above 0 and at most 1; 1 is off");
    require(options.min_p >= 0 && options.min_p <= 1, "min-p", options.min_p, "between 0 and 1");
    // With larger penalties, products with ordinary logits could be infinite.
    constexpr double kPenaltyMax = 1e6;
    require(
        options.repetition_penalty >= 1 / kPenaltyMax && options.repetition_penalty <= kPenaltyMax,
        "repetition penalty", options.repetition_penalty, "between 1e-6 and 1e6; 1 is off");
    require(options.tokens_min >= 0 && options.length_min >= 0, "the minimum number of tokens",
            static_cast<double>(std::min(options.tokens_min, options.length_min)), "0 or above");
}

bool are_finite(std::span<const float> logits) {
    return std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); });
}

int32_t likeliest(std::span<const float> logits) {
    DSL_CHECK(!logits.empty(), "no logits");
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Applies the repetition penalty (arXiv:1909.05858) to the logits of tokens in TEXT. Positive
// logits are divided by the penalty, and negative logits are multiplied by it.
void Sampler::penalize(std::span<float> logits, std::span<const int32_t> text) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    penalized_.assign(logits.size(), false);
    for (const int32_t token : text) {
        const auto at = static_cast<size_t>(token);
        if (at >= logits.size() || penalized_[at]) continue;
        penalized_[at] = true;
        constexpr float kMost = std::numeric_limits<float>::max();
        logits[at] =
            std::clamp(logits[at] < 0 ? logits[at] * penalty : logits[at] / penalty, -kMost, kMost);
    }
}

// Applies the penalties of OpenAI's protocol. Only tokens that were made count for these penalties.
void Sampler::penalize_made(std::span<float> logits, std::span<const int32_t> made) {
    if (options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
    penalized_.assign(logits.size(), false);
    for (const int32_t token : made) {
        const auto at = static_cast<size_t>(token);
        if (at >= logits.size()) continue;
        logits[at] -= static_cast<float>(options_.frequency_penalty);
        if (!penalized_[at]) logits[at] -= static_cast<float>(options_.presence_penalty);
        penalized_[at] = true;
    }
}

void Sampler::ban(std::span<float> logits, std::span<const int32_t> text) const {
    if (options_.rules) {
        const TokenRules& rules = *options_.rules;
        ban_repeated(logits, text, static_cast<size_t>(rules.ngram));
        for (const std::vector<int32_t>& word : rules.bad_words) {
            const bool is_end =
                word.size() == 1 &&
                std::ranges::find(bounds_.end_tokens, word[0]) != bounds_.end_tokens.end();
            if (!is_end && comes_next(word, text)) add_bias(logits, word.back(), kBanned);
        }
        for (const int32_t token : rules.suppressed) add_bias(logits, token, kBanned);
        if (made_ == 0)
            for (const int32_t token : rules.suppressed_first) add_bias(logits, token, kBanned);
    }
    if (made_ < options_.tokens_min || std::ssize(text) < options_.length_min)
        for (const int32_t token : bounds_.end_tokens) add_bias(logits, token, kBanned);
}

void Sampler::apply_rules(std::span<float> logits, std::span<const int32_t> text) {
    if (options_.rules)
        for (const TokenBias& bias : options_.rules->biases)
            if (comes_next(bias.tokens, text)) add_bias(logits, bias.tokens.back(), bias.bias);
    if (options_.repetition_penalty != 1) penalize(logits, text);
    penalize_made(logits, text.last(std::min(static_cast<size_t>(made_), text.size())));
    ban(logits, text);
    if (!options_.rules || options_.rules->last.empty() || made_ + 1 != bounds_.tokens_max) return;
    std::ranges::fill(logits, kBanned);
    for (const int32_t token : options_.rules->last)
        if (token < std::ssize(logits)) logits[static_cast<size_t>(token)] = 0;
}

// Collects the top_k likeliest tokens, or all that are not banned, sorted by likelihood.
void Sampler::collect(std::span<const float> logits) {
    candidates_.clear();
    for (size_t i = 0; i < logits.size(); ++i)
        if (logits[i] != kBanned) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    const auto is_likelier = [](const Candidate& a, const Candidate& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    };
    const auto kept = static_cast<ptrdiff_t>(
        options_.top_k == 0 ? std::ssize(candidates_)
                            : std::min<int64_t>(options_.top_k, std::ssize(candidates_)));
    if (kept < std::ssize(candidates_)) {
        std::nth_element(candidates_.begin(), candidates_.begin() + (kept - 1), candidates_.end(),
                         is_likelier);
        candidates_.resize(static_cast<size_t>(kept));
    }
    std::ranges::sort(candidates_, is_likelier);
}

void Sampler::keep_likely() {
    const double largest = candidates_.front().logit;
    probabilities_.clear();
    double sum = 0;
    for (const Candidate& candidate : candidates_) {
        probabilities_.push_back(std::exp((candidate.logit - largest) / options_.temperature));
        sum += probabilities_.back();
    }
    size_t kept = candidates_.size();
    if (options_.top_p < 1) {
        double reached = 0;
        for (kept = 0; kept < candidates_.size() && reached < options_.top_p * sum; ++kept)
            reached += probabilities_[kept];
    }
    while (kept > 1 && probabilities_[kept - 1] < options_.min_p * probabilities_.front()) --kept;
    probabilities_.resize(kept);
}

int32_t Sampler::draw() {
    double sum = 0;
    for (const double probability : probabilities_) sum += probability;
    // The number is made from 53 random bits, because the distributions of different standard
    // libraries give different results.
    const double place = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
    double reached = 0;
    for (size_t i = 0; i < probabilities_.size(); ++i) {
        reached += probabilities_[i];
        if (place < reached) return candidates_[i].token;
    }
    return candidates_[probabilities_.size() - 1].token;
}

int32_t Sampler::next(std::span<float> logits, std::span<const int32_t> text) {
    DSL_CHECK(!logits.empty(), "no logits");
    apply_rules(logits, text);
    ++made_;
    if (options_.temperature == 0 || options_.top_k == 1) return likeliest(logits);
    collect(logits);
    if (candidates_.empty()) return likeliest(logits);
    keep_likely();
    return draw();
}

}  // namespace dslaunch::decoder
