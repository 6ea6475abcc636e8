#include "decoder/decode/rotary_table.h"

#include <cmath>

#include "base/check.h"

namespace dslaunch::decoder {

void RotaryTable::prepare(const Batch& batch) {
    if (!config_.has_rotary()) return;
    fill(all_, batch, frequencies_.all, frequencies_.late, config_.rope.magnitude);
    if (!frequencies_.window.empty())
        fill(window_, batch, frequencies_.window, {}, config_.window_rope.magnitude);
}

// Computes cosines and sines in the order of transformers' operators: the angle is rounded to fp32
// first.
void RotaryTable::fill(Table& table, const Batch& batch, const std::vector<double>& frequencies,
                       const std::vector<double>& late, double magnitude) const {
    const int64_t pairs = std::ssize(frequencies), rows = std::ssize(batch.rows);
    const storage::Rope& rope = config_.rope;
    std::vector<double> grown;  // the frequencies for rows of length GROWN_LENGTH
    int64_t grown_length = 0;
    grow(table.cos, rows * pairs);
    grow(table.sin, rows * pairs);
    for (int64_t i = 0; i < rows; ++i) {
        const BatchRow& row = batch.rows[static_cast<size_t>(i)];
        const bool is_late = row.length > rope.original_context;
        const std::vector<double>* turns_of_row = is_late && !late.empty() ? &late : &frequencies;
        if (is_late && rope.kind == storage::RopeKind::kDynamic) {
            if (row.length != grown_length) grown = storage::dynamic_frequencies(rope, row.length);
            grown_length = row.length;
            turns_of_row = &grown;
        }
        for (int64_t p = 0; p < pairs; ++p) {
            const auto turns = static_cast<float>((*turns_of_row)[p]);
            const float angle = static_cast<float>(row.position) * turns;
            table.cos[i * pairs + p] = std::cos(angle) * static_cast<float>(magnitude);
            table.sin[i * pairs + p] = std::sin(angle) * static_cast<float>(magnitude);
        }
    }
}

void RotaryTable::rotate(const LayerWeights& layer, Heads queries, Heads keys, int64_t rows,
                         RowMath& math) const {
    if (!layer.turns) return;
    const int64_t head = config_.head_width;
    const bool in_window = layer.has_window && !frequencies_.window.empty();
    const Table& table = in_window ? window_ : all_;
    const int64_t pairs = std::ssize(in_window ? frequencies_.window : frequencies_.all);
    const kernels::TokenKernels& kernels = math.kernels();
    const auto rotate = config_.turns_neighbours ? kernels.rotate_pairs : kernels.rotate_halves;
    DSL_CHECK(2 * pairs <= head, "{} rotated pairs do not fit in a head of {} elements", pairs,
              head);
    math.for_rows(rows, [&](int64_t row) {
        for (const Heads& part : {queries, keys}) {
            const kernels::Rotation rotation{part.heads, head, table.cos.data() + row * pairs,
                                             table.sin.data() + row * pairs, pairs};
            rotate(part.values + row * part.heads * head, rotation);
        }
    });
}

}  // namespace dslaunch::decoder
