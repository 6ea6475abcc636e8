// How likely a model finds the two answers of each pair of a file of rows. Data path: token_rows.h
// -> [here] -> eval, and the column `reference` that a loss of preferences reads. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/text/json.h"
#include "decoder/score/text_scores.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {

struct PairScores {
    // The log-probability of each row's answer, in nats, and the number of its tokens.
    std::vector<float> of_answer;
    std::vector<int64_t> tokens;
};

struct PairScoring {
    int64_t pairs = 0;  // the first ones of the file
    std::function<void(int64_t pairs_done)> tell;
};

// REQUIRES: ROWS has pairs, at least as many as asked for.
[[nodiscard]] PairScores score_pairs(const TokenRows& rows, decoder::TextScorer& scorer,
                                     const PairScoring& options);

// Adds to JSON how often the chosen answer is the likelier one, and beside ROWS' reference, if it
// has one, how often and by how many nats it gains on the other. Returns the same in words.
[[nodiscard]] std::string describe_pairs(const TokenRows& rows, const PairScores& scores,
                                         JsonWriter& json);

}  // namespace dslaunch::worker
