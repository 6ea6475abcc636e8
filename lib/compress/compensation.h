// Rounds weights one input after the other, and changes the weights that are not yet rounded so
// that the layer's outputs change least: GPTQ (Frantar et al. 2022, arXiv:2210.17323). Inputs with
// large moments come first, when there are still many weights that can make up for their errors;
// groups stay as they are stored. Data path: weights and input_moments.h -> [here] ->
// packed_tensors.h. One thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/rounding.h"
#include "kernels/thread_team.h"

namespace dslaunch::compress {

// All that the compensation needs to know about a layer's inputs.
struct InputOrder {
    std::vector<int64_t> order;     // [in]: the inputs, in the order in which they are rounded
    std::vector<float> factor;      // [in, in]: inverse_factor() of the moments in that order
    std::vector<float> importance;  // [in]: the moment of each input, which weighs its errors
};

// The version of the codes that this library chooses. A run makes layers again if another version
// has finished them.
inline constexpr int kRoundingVersion = 2;

// Returns the damping for moments of ROWS rows of IN inputs: 0.01 + IN / ROWS. The fewer the rows,
// the less the products of two inputs say about other rows.
[[nodiscard]] double damping_of(int64_t in, int64_t rows);
// Returns true if ROWS rows of IN inputs are enough for compensation to lower the errors on other
// rows. With fewer rows, rounding to nearest loses less.
[[nodiscard]] bool are_enough_rows(int64_t in, int64_t rows);

// Returns the order of inputs with these MOMENTS, [in, in]. inverse_factor() says what DAMPING does
// to the result's factor.
[[nodiscard]] InputOrder order_inputs(const std::vector<float>& moments, int64_t in, double damping,
                                      kernels::ThreadTeam& team);

// Rounds NUMBERS, [out, in]. The scales of all groups are chosen first, for the numbers as they
// are. The bits do not depend on the team. REQUIRES: the numbers are finite.
[[nodiscard]] RoundedMatrix round_with_compensation(const RoundingForm& form,
                                                    const std::vector<float>& numbers, int64_t out,
                                                    const InputOrder& inputs,
                                                    kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
