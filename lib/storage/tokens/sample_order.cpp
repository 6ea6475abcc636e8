#include "storage/tokens/sample_order.h"

#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/splitmix64.h"

namespace dslaunch::storage {
namespace {

constexpr int kRounds = 6;

}  // namespace

int64_t token_sample_count(int64_t token_count, int64_t context) {
    DSL_CHECK(context >= 1, "a context of {} is not valid", context);
    return token_count < 2 ? 0 : (token_count - 1) / context;
}

SampleSplit split_samples(int64_t sample_count, double eval_fraction) {
    DSL_CHECK(eval_fraction >= 0 && eval_fraction < 1, "eval_fraction {} is not valid",
              eval_fraction);
    const auto eval =
        static_cast<int64_t>(std::floor(static_cast<double>(sample_count) * eval_fraction));
    return {sample_count - eval, eval};
}

int64_t position_of(const BatchPlace& p) {
    return ((p.step * p.micro_steps + p.micro_step) * p.ranks + p.rank) * p.rows + p.row;
}

SampleOrder::SampleOrder(const Options& options) : options_(options) {
    DSL_CHECK(options.sample_count >= 1, "sample_count {} is not valid", options.sample_count);
    const auto bits =
        static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(options.sample_count) - 1));
    half_bits_ = (bits + 1) / 2;
}

int64_t SampleOrder::sample_at(int64_t position) const {
    DSL_CHECK(position >= 0, "position {} is not valid", position);
    const int64_t n = options_.sample_count;
    const int64_t index = position % n;
    if (!options_.shuffle || n == 1) return index;
    // The network permutes the range [0, 4^half_bits), which has fewer than 4n numbers. Repeating
    // the network until the value is below n gives a permutation of [0, n).
    auto value = static_cast<uint64_t>(index);
    const auto epoch = static_cast<uint64_t>(position / n);
    do value = permute(value, epoch);
    while (value >= static_cast<uint64_t>(n));
    return static_cast<int64_t>(value);
}

// Permutes VALUE with a balanced Feistel network (Luby & Rackoff 1988) of 2 * half_bits_ bits,
// keyed by seed, epoch and round.
uint64_t SampleOrder::permute(uint64_t value, uint64_t epoch) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    const uint64_t key = splitmix64(splitmix64(options_.seed) ^ epoch);
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
        const uint64_t next = left ^ (splitmix64(splitmix64(key + round) ^ right) & mask);
        left = right;
        right = next;
    }
    return (left << half_bits_) | right;
}

}  // namespace dslaunch::storage
