#include "worker/text/pair_scores.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace dslaunch::worker {

namespace {

struct Answer {
    std::vector<int32_t> tokens, targets;
};

// Nothing behind the last target changes it.
Answer answer_of(const TokenRows& rows, int64_t row) {
    Answer answer{rows.tokens(row), rows.targets(row)};
    while (answer.tokens.size() > 1 && answer.targets.back() == decoder::kNoTarget) {
        answer.tokens.pop_back();
        answer.targets.pop_back();
    }
    return answer;
}

// So many tokens at the beginning are the same in both and have no target in the second.
int64_t shared_prompt(const Answer& first, const Answer& second) {
    int64_t shared = 0;
    const int64_t most = std::min(std::ssize(first.tokens), std::ssize(second.tokens) - 1);
    while (shared < most && first.tokens[shared] == second.tokens[shared] &&
           second.targets[shared] == decoder::kNoTarget)
        ++shared;
    return shared;
}

}  // namespace

PairScores score_pairs(const TokenRows& rows, decoder::TextScorer& scorer,
                       const PairScoring& options) {
    PairScores scores;
    const auto add = [&](const decoder::TextScore& score) {
        scores.of_answer.push_back(static_cast<float>(-score.loss));
        scores.tokens.push_back(score.targets);
    };
    for (int64_t pair = 0; pair < options.pairs; ++pair) {
        const Answer chosen = answer_of(rows, 2 * pair), rejected = answer_of(rows, 2 * pair + 1);
        add(scorer.score(chosen.tokens, chosen.targets, {.length = rows.length()}));
        const int64_t known = shared_prompt(chosen, rejected);
        add(scorer.score(rejected.tokens, rejected.targets,
                         {.known = known, .length = rows.length()}));
        options.tell(pair + 1);
    }
    return scores;
}

std::string describe_pairs(const TokenRows& rows, const PairScores& scores, JsonWriter& json) {
    const std::vector<float> reference = rows.reference();
    const int64_t pairs = std::ssize(scores.of_answer) / 2;
    int64_t likelier = 0, likelier_by_token = 0, gained = 0;
    double margin = 0;
    for (int64_t pair = 0; pair < pairs; ++pair) {
        const auto chosen = static_cast<size_t>(2 * pair), rejected = chosen + 1;
        const auto by_token = [&](size_t row) {
            return scores.of_answer[row] /
                   static_cast<double>(std::max<int64_t>(scores.tokens[row], 1));
        };
        likelier += scores.of_answer[chosen] > scores.of_answer[rejected] ? 1 : 0;
        likelier_by_token += by_token(chosen) > by_token(rejected) ? 1 : 0;
        if (reference.empty()) continue;
        const auto gain = [&](size_t row) {
            return static_cast<double>(scores.of_answer[row]) - reference[row];
        };
        gained += gain(chosen) > gain(rejected) ? 1 : 0;
        margin += gain(chosen) - gain(rejected);
    }
    const auto part = [&](int64_t count) {
        return static_cast<double>(count) / static_cast<double>(pairs);
    };
    json.field("pairs", pairs).field("chosen_likelier", part(likelier));
    json.field("chosen_likelier_by_token", part(likelier_by_token));
    std::string text = fmt::format(
        "{}: the chosen answer is the likelier one in {:.1f} %, by likelihood a token in {:.1f} "
        "%\n",
        counted(pairs, "pair"), 100 * part(likelier), 100 * part(likelier_by_token));
    if (reference.empty()) return text;
    margin /= static_cast<double>(pairs);
    json.field("reward_accuracy", part(gained)).field("reward_margin", margin);
    return text + fmt::format(
                      "beside the reference{} the chosen answer gains in {:.1f} % (reward "
                      "accuracy), by {:.4f} nats in the mean (margin / beta)\n",
                      rows.reference_model().empty() ? "" : " " + printable(rows.reference_model()),
                      100 * part(gained), margin);
}

}  // namespace dslaunch::worker
