// The arithmetic that all parts of a decoder share: norms of rows, and products of rows with the
// weights of layers. Data path: rows, fp32 -> [here] -> rows, fp32. One thread calls; the team's
// threads compute. The result for a row does not depend on the other rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "decoder/weights/decoder_weights.h"
#include "kernels/matrix/matrix_tables.h"
#include "kernels/matrix/multiply.h"
#include "kernels/thread_team.h"

namespace dslaunch::decoder {

// Makes BUFFER at least NUMEL long; it never shrinks.
void grow(std::vector<float>& buffer, int64_t numel);

// Returns true if LAYER has no weights.
[[nodiscard]] bool is_empty(const LinearWeights& layer);

// Returns the number of outputs of LAYER on this rank.
[[nodiscard]] int64_t outputs_of(const LinearWeights& layer);

// Arithmetic on rows. It is computed by a team, with buffers that are kept between calls.
class RowMath {
  public:
    // CONFIG and TEAM must outlive this object.
    RowMath(const storage::TransformerConfig& config, kernels::ThreadTeam& team)
        : config_(config), team_(team) {}

    // Normalizes ROWS rows of WIDTH numbers. If NORM has weights for N rows, row i uses row `i % N`
    // of the weights. If NORM is not present, copies X to OUT. OUT may be X.
    void norm(const NormWeights& norm, const float* x, int64_t width, float* out, int64_t rows);

    // A layer and the place of its outputs, [rows, outputs_of(layer)].
    struct Use {
        const LinearWeights* layer = nullptr;
        float* y = nullptr;
    };
    // Computes y = x Wᵀ (+ bias) (+ the adapter's change) for each of several layers that have the
    // same input X. SHAPE of X: [rows, in].
    void multiply(std::span<const Use> uses, const float* x, int64_t in, int64_t rows);

    // A function that multiply() calls with the inputs of the layers. X: [rows, in].
    using Observer =
        std::function<void(std::span<const Use> uses, const float* x, int64_t in, int64_t rows)>;
    // Calls OBSERVER in each multiply() from now on.
    void observe(Observer observer) { observer_ = std::move(observer); }

    // Calls WORK for each row. If there are many rows, the threads of the team share them.
    void for_rows(int64_t rows, const std::function<void(int64_t row)>& work);

    // Returns the kernels for single rows.
    [[nodiscard]] const kernels::TokenKernels& kernels() const { return kernels_; }
    // Returns the threads that compute.
    [[nodiscard]] kernels::ThreadTeam& team() { return team_; }

  private:
    const float* rounded_inputs(storage::InputRounding how, const float* x, int64_t in,
                                int64_t rows);

    const storage::TransformerConfig& config_;
    kernels::ThreadTeam& team_;
    const kernels::TokenKernels& kernels_ = kernels::token_kernels_of();
    kernels::Activations activations_;
    std::vector<float> adapter_;  // the product with an adapter's first matrix
    std::vector<float> rounded_;  // inputs after input_rounding
    Observer observer_;
};

}  // namespace dslaunch::decoder
