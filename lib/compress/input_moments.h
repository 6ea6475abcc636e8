// The second moments of a layer's inputs over calibration rows, Xᵀ X / rows: how much an error in
// each weight changes the layer's outputs. Data path: layer_walk.h -> [here] -> compensation.h. One
// thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/matrix/multiply.h"
#include "kernels/thread_team.h"

namespace dslaunch::compress {

// The moments of a layer's inputs: for each pair of inputs, the sum of their products over all
// rows, in fp32.
class InputMoments {
  public:
    explicit InputMoments(int64_t in);

    // Adds ROWS rows of X, [rows, in], contiguous. The result is the same for any team, but depends
    // on how the rows are divided into calls.
    void add(const float* x, int64_t rows, kernels::ThreadTeam& team);

    [[nodiscard]] int64_t in() const { return in_; }
    [[nodiscard]] int64_t rows() const { return rows_; }  // rows that were added
    // Returns the mean over all rows, [in, in], symmetric; zeros if there were no rows.
    [[nodiscard]] std::vector<float> mean() const;

  private:
    int64_t in_;
    int64_t rows_ = 0;
    std::vector<float> sums_;  // [in, in]; only the blocks up to the diagonal
    kernels::Activations activations_;
};

// Returns the error that rounding a weight causes in a layer's outputs, relative to the outputs:
// `sqrt(mean(|(W - V) x|^2) / mean(|W x|^2))`. W is EXACT and V is ROUNDED; both have the shape
// [out, in]. The means are over the input rows x of which MOMENTS were computed. Returns 0 if the
// outputs are 0.
[[nodiscard]] double output_error(std::span<const float> exact, std::span<const float> rounded,
                                  const std::vector<float>& moments, int64_t in,
                                  kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
