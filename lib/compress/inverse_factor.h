// The triangular factor of an inverse: U with U^T U = M^-1, which tells how later weights of a row
// make up for the error of an earlier weight. Data path: input_moments.h -> [here] ->
// compensation.h. One thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/thread_team.h"

namespace dslaunch::compress {

// Returns the upper triangular U, [n, n], for which Uᵀ U is the inverse of MOMENTS, a symmetric
// matrix [n, n]. Before the inversion, each number on the diagonal is multiplied by 1 + DAMPING. If
// the matrix is then not positive definite in fp32, the inversion is repeated with a larger
// damping, `max(10 * DAMPING, 1e-4)`. (Other programs add the mean of the diagonal, which is a bad
// measure if a few inputs are a thousand times larger than the others.) If an input is always 0,
// its number on the diagonal is replaced by the mean of the diagonal. If all moments are 0, U is
// the unit matrix. The bits do not depend on the team. REQUIRES: the moments are finite.
[[nodiscard]] std::vector<float> inverse_factor(const std::vector<float>& moments, int64_t n,
                                                double damping, kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
