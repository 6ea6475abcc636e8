#include "infer/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::infer {

namespace {

void require(bool holds, const char* option, double given, const char* range) {
    if (!holds) fail(ExitCode::kUsage, "{} is {}, and must be {}", option, given, range);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
    require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature",
            options.temperature, "0 or above");
    require(options.top_k >= 0, "top-k", static_cast<double>(options.top_k), "0 or above");
    require(options.top_p > 0 && options.top_p <= 1, "top-p", options.top_p,
            "above 0 and at most 1");
    require(options.min_p >= 0 && options.min_p <= 1, "min-p", options.min_p, "between 0 and 1");
    // Beyond it, products with logits of any model would be infinite.
    constexpr double kPenaltyMax = 1e6;
    require(
        options.repetition_penalty >= 1 / kPenaltyMax && options.repetition_penalty <= kPenaltyMax,
        "repetition penalty", options.repetition_penalty, "above 0, from 1e-6 to 1e6");
}

bool are_finite(std::span<const float> logits) {
    return std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); });
}

int32_t likeliest(std::span<const float> logits) {
    DSL_CHECK(!logits.empty(), "no logits");
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Logits of tokens in TEXT are divided if positive and multiplied otherwise (arXiv:1909.05858).
void Sampler::penalize(std::span<float> logits, std::span<const int32_t> text) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    is_penalized_.assign(logits.size(), false);
    for (const int32_t token : text) {
        const auto at = static_cast<size_t>(token);
        if (at >= logits.size() || is_penalized_[at]) continue;
        is_penalized_[at] = true;
        constexpr float kMost = std::numeric_limits<float>::max();
        logits[at] =
            std::clamp(logits[at] < 0 ? logits[at] * penalty : logits[at] / penalty, -kMost, kMost);
    }
}

// The top_k likeliest, or all, sorted.
void Sampler::collect(std::span<const float> logits) {
    candidates_.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
        candidates_[i] = {logits[i], static_cast<int32_t>(i)};
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
    // 53 bits: a distribution of the standard library would differ from one to the next.
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
    if (options_.repetition_penalty != 1) penalize(logits, text);
    if (options_.temperature == 0 || options_.top_k == 1) return likeliest(logits);
    collect(logits);
    keep_likely();
    return draw();
}

}  // namespace dslaunch::infer
