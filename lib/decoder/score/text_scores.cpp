#include "decoder/score/text_scores.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "decoder/sample/sampler.h"

namespace dslaunch::decoder {

namespace {

// The logits of a step take at most 256 MiB.
constexpr int64_t kLogitsNumelMax = int64_t{1} << 26;

double negative_log_probability(std::span<const float> logits, int32_t target) {
    const float largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    return std::log(sum) + largest - logits[static_cast<size_t>(target)];
}

}  // namespace

TextScore& TextScore::operator+=(const TextScore& other) {
    loss += other.loss;
    targets += other.targets;
    likeliest += other.likeliest;
    return *this;
}

void TextScorer::check(std::span<const int32_t> tokens, std::span<const int32_t> targets) const {
    DSL_CHECK(!tokens.empty() && tokens.size() == targets.size(),
              "found {} tokens and {} targets, expected as many targets as tokens", tokens.size(),
              targets.size());
    const int64_t positions = runner_.positions_max();
    if (std::ssize(tokens) > positions)
        fail(ExitCode::kInput,
             "a text has {} tokens, but at most {} are possible: the model's context length, or "
             "--context if it is smaller; use shorter texts, or leave --context out",
             tokens.size(), positions);
    for (const std::span<const int32_t>& list : {tokens, targets})
        for (const int32_t token : list)
            if ((token < 0 && !(token == kNoTarget && list.data() == targets.data())) ||
                token >= runner_.vocabulary())
                fail(ExitCode::kInput, "token {} is outside the model's vocabulary of {}", token,
                     runner_.vocabulary());
}

TextScore TextScorer::score(std::span<const int32_t> tokens, std::span<const int32_t> targets,
                            const ScoreOptions& options) {
    check(tokens, targets);
    DSL_CHECK(options.known >= 0 && options.known < std::ssize(tokens),
              "{} known tokens leave no other token in a text of {} tokens", options.known,
              tokens.size());
    const auto length = static_cast<int32_t>(std::max(options.length, std::ssize(tokens)));
    const auto vocabulary = static_cast<size_t>(runner_.vocabulary());
    const int64_t piece =
        std::clamp<int64_t>(kLogitsNumelMax / runner_.vocabulary(), 1, runner_.rows_max());
    std::vector<int32_t> pages;
    for (int64_t page = 0; page < pages_for(std::ssize(tokens)); ++page)
        pages.push_back(static_cast<int32_t>(page));
    TextScore score;
    for (int64_t begin = options.known; begin < std::ssize(tokens); begin += piece) {
        const int64_t end = std::min(begin + piece, std::ssize(tokens));
        Batch batch;
        batch.sequences.push_back({pages});
        for (int64_t i = begin; i < end; ++i)
            batch.rows.push_back(
                {tokens[i], static_cast<int32_t>(i), 0, length, targets[i] != kNoTarget});
        std::span<const float> logits = runner_.run(batch);
        for (int64_t i = begin; i < end; ++i) {
            if (targets[i] == kNoTarget) continue;
            const std::span<const float> row = logits.first(vocabulary);
            logits = logits.subspan(vocabulary);
            if (!are_finite(row))
                fail(ExitCode::kInput, "token {} of a text of {} tokens: {}", i, tokens.size(),
                     kBrokenLogits);
            score.loss += negative_log_probability(row, targets[i]);
            score.likeliest += likeliest(row) == targets[i] ? 1 : 0;
            ++score.targets;
        }
    }
    return score;
}

}  // namespace dslaunch::decoder
