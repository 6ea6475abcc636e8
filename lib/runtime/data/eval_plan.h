// Divides an evaluation among the ranks. Each held-out sample is used once, and batches do not
// depend on the number of ranks. Pure functions of numbers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dslaunch::runtime {

// Samples [first, first + rows). A rank without a batch in a round gets rows == 0.
struct EvalBatch {
    int64_t index = 0;  // index in the whole evaluation, which orders the sum of the losses
    int64_t first = 0;
    int64_t rows = 0;
};

// A rank's part of an evaluation. REQUIRES: sample_count >= 0, batch_rows >= 1, 0 <= rank < ranks.
struct EvalPlan {
    int64_t sample_count = 0;  // samples of the held-out set
    int64_t batch_rows = 1;    // the last batch may have fewer
    int64_t ranks = 1;         // data-parallel ranks
    int64_t rank = 0;

    // Returns the number of rounds, the same on all ranks, so that their collectives match.
    [[nodiscard]] int64_t round_count() const {
        const int64_t batches = (sample_count + batch_rows - 1) / batch_rows;
        return (batches + ranks - 1) / ranks;
    }
    // Returns this rank's batch in ROUND. Its number in the whole evaluation is `round * ranks +
    // rank`. REQUIRES: 0 <= round < round_count().
    [[nodiscard]] EvalBatch batch(int64_t round) const {
        const int64_t index = round * ranks + rank;
        const int64_t first = std::min(index * batch_rows, sample_count);
        return {index, first, std::min(batch_rows, sample_count - first)};
    }
};

}  // namespace dslaunch::runtime
