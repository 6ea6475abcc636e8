// One step of a decoder as data: the rows to compute, each a token of some sequence at a position,
// and the pages of those sequences. Ranks of a group all compute the same batch. Data path: engine
// -> [here] -> decoder. A value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::decoder {

// The positions of a page: it holds the keys and values of so many neighbouring positions of one
// sequence, in every layer.
inline constexpr int64_t kPagePositions = 32;

[[nodiscard]] constexpr int64_t pages_for(int64_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
}

struct BatchRow {
    int32_t token = 0;
    int32_t position = 0;
    int32_t sequence = 0;  // index into Batch::sequences
    int32_t length = 0;    // positions that the sequence had when this row was first asked for
    bool wants_logits = false;
};

struct BatchSequence {
    std::vector<int32_t> pages;  // enough for the last position of its rows
};

// Rows of one sequence are neighbours, at ascending positions without a gap, and all positions
// before the first of them are in the cache.
struct Batch {
    std::vector<BatchRow> rows;
    std::vector<BatchSequence> sequences;

    [[nodiscard]] int64_t logits_rows() const;
};

// Returns a batch as bytes for the other ranks, and back. Throws Error{kDiverged} for other bytes.
[[nodiscard]] std::string batch_bytes(const Batch& batch);
[[nodiscard]] Batch parse_batch(std::string_view bytes);

// A runner of batches: a decoder of this process, or the ranks of a group that share one.
class StepRunner {
  public:
    virtual ~StepRunner() = default;
    [[nodiscard]] virtual int64_t vocabulary() const = 0;
    [[nodiscard]] virtual int64_t context() const = 0;  // positions that a sequence can have
    [[nodiscard]] virtual int64_t pages() const = 0;    // of the cache
    [[nodiscard]] virtual int64_t rows_max() const = 0;
    // Returns true if run() threw after telling other ranks of the batch: they wait in it.
    [[nodiscard]] virtual bool is_stuck() const { return false; }
    // Returns the positions that a text alone can have, by the context and by the cache.
    [[nodiscard]] int64_t positions_max() const {
        return std::min(context(), pages() * kPagePositions);
    }
    // Computes BATCH. Returns the logits of the rows that want them, in order. SHAPE:
    // [logits_rows, vocabulary] fp32, to be changed at will, valid until the next call. REQUIRES:
    // at most rows_max() rows; tokens, positions and pages are in range.
    [[nodiscard]] virtual std::span<float> run(const Batch& batch) = 0;
};

}  // namespace dslaunch::decoder
