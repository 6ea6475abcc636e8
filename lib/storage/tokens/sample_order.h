// The order of samples: which sample is in each row of each micro batch. It is a pure function of
// (seed, epoch, position), so that it does not depend on the world size and needs no table.
// Threads: const after construction.
#pragma once

#include <cstdint>

namespace dslaunch::storage {

// Returns the number of samples in a token file, each of CONTEXT tokens with their targets:
// (TOKEN_COUNT - 1) / CONTEXT, or 0 if TOKEN_COUNT < 2. REQUIRES: context >= 1.
[[nodiscard]] int64_t token_sample_count(int64_t token_count, int64_t context);

// The first `train` samples are used for training; the last `eval` = floor(count * fraction) are
// held out.
struct SampleSplit {
    int64_t train = 0;
    int64_t eval = 0;
};
// Splits SAMPLE_COUNT samples. REQUIRES: 0 <= eval_fraction < 1.
[[nodiscard]] SampleSplit split_samples(int64_t sample_count, double eval_fraction);

// The place of a row in training. The comments give each member's letter in the formula of
// position_of().
struct BatchPlace {
    int64_t step = 0;
    int64_t micro_step = 0;   // a of A
    int64_t micro_steps = 1;  // A
    int64_t rank = 0;         // r of W, data-parallel
    int64_t ranks = 1;        // W
    int64_t row = 0;          // b of B
    int64_t rows = 1;         // B
};

// Returns ((s*A+a)*W+r)*B+b: the row's number since the start of training.
[[nodiscard]] int64_t position_of(const BatchPlace& place);

// The order of samples in all epochs of a run.
class SampleOrder {
  public:
    // The options, which are the same on all ranks.
    struct Options {
        int64_t sample_count = 0;  // n >= 1
        uint64_t seed = 0;
        bool shuffle = true;
    };
    // REQUIRES: sample_count >= 1.
    explicit SampleOrder(const Options& options);

    // Returns the sample in [0, n) at POSITION >= 0. The positions of epoch e are [e*n, (e+1)*n),
    // with each sample once. Needs a few hashes.
    [[nodiscard]] int64_t sample_at(int64_t position) const;

  private:
    [[nodiscard]] uint64_t permute(uint64_t value, uint64_t epoch) const;

    Options options_;
    unsigned half_bits_;
};

}  // namespace dslaunch::storage
