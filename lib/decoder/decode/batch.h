// One step of a decoder as data: the rows to compute, and the cache pages of their sequences. A row
// is one token at one position of a sequence. All ranks of a group compute the same batch. Data
// path: engine -> [here] -> decoder. A value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::decoder {

// The number of positions in a page. A page holds the keys and values of this many consecutive
// positions of one sequence, for every layer.
inline constexpr int64_t kPagePositions = 32;

// Returns the number of pages for POSITIONS of one sequence.
[[nodiscard]] constexpr int64_t pages_for(int64_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions;
}

// One token to compute.
struct BatchRow {
    int32_t token = 0;
    int32_t position = 0;
    int32_t sequence = 0;  // index into Batch::sequences
    int32_t length = 0;    // length of the text when this row was first computed
    bool wants_logits = false;
};

// A sequence with at least one row in the batch.
struct BatchSequence {
    std::vector<int32_t> pages;  // enough for the last position of the rows
};

// The rows of one sequence are adjacent and have consecutive positions, and the cache contains all
// positions before the first of them.
struct Batch {
    std::vector<BatchRow> rows;
    std::vector<BatchSequence> sequences;

    // Returns the number of rows that want logits.
    [[nodiscard]] int64_t logits_rows() const;
};

// Convert a batch to bytes for the other ranks, and back. parse_batch() throws Error{kDiverged} if
// BYTES are not a batch.
[[nodiscard]] std::string batch_bytes(const Batch& batch);
[[nodiscard]] Batch parse_batch(std::string_view bytes);

// The interface that computes batches. One implementation uses a decoder in this process; the other
// one uses a group of ranks that share a decoder.
class BatchRunner {
  public:
    virtual ~BatchRunner() = default;
    [[nodiscard]] virtual int64_t vocabulary() const = 0;  // number of tokens, and of logits in a
                                                           // row
    [[nodiscard]] virtual int64_t context() const = 0;     // largest number of positions in a
                                                           // sequence
    [[nodiscard]] virtual int64_t pages() const = 0;       // pages in the cache
    [[nodiscard]] virtual int64_t rows_max() const = 0;    // largest number of rows in a batch
    // Returns true if run() threw after it had sent the batch to the other ranks. They are then
    // blocked in this batch.
    [[nodiscard]] virtual bool is_stuck() const { return false; }
    // Returns the number of positions that a text can have if no other text is in the cache. The
    // context and the size of the cache limit it.
    [[nodiscard]] int64_t positions_max() const {
        return std::min(context(), pages() * kPagePositions);
    }
    // Computes BATCH. Returns the logits of the rows that want them, in order. SHAPE: [logits_rows,
    // vocabulary] fp32; the caller may change them, and they are valid until the next call.
    // REQUIRES: at most rows_max() rows; tokens, positions and pages are in range.
    [[nodiscard]] virtual std::span<float> run(const Batch& batch) = 0;
};

}  // namespace dslaunch::decoder
