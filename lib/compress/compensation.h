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

// The order of a layer's inputs, and the data with which rounding errors are compensated.
struct InputOrder {
    std::vector<int64_t> order;     // [in]: the inputs, in the order in which they are rounded
    std::vector<float> factor;      // [in, in]: inverse_factor() of the moments in that order
    std::vector<float> importance;  // [in]: the moment of each input, which weighs its errors
};

// The version of the rounding algorithm. If an earlier run finished layers with another version,
// they are rounded again.
inline constexpr int kRoundingVersion = 2;

// Returns the damping for order_inputs(): 0.01 + IN / ROWS. The moments are means over ROWS rows of
// IN inputs. With fewer rows, they say less about other data, so the damping is larger.
[[nodiscard]] double damping_of(int64_t in, int64_t rows);
// Returns true if ROWS rows of IN inputs are enough to round with compensation. With fewer rows,
// rounding to nearest gives smaller errors on other data.
[[nodiscard]] bool are_enough_rows(int64_t in, int64_t rows);

// Returns the order in which a layer's inputs are rounded. MOMENTS, [in, in], are the means of
// input_moments.h. DAMPING is passed to inverse_factor().
[[nodiscard]] InputOrder order_inputs(const std::vector<float>& moments, int64_t in, double damping,
                                      kernels::ThreadTeam& team);

// Rounds NUMBERS, [out, in]. The scales of all groups are chosen first, from the original numbers.
// CHANGED, if not null, becomes the numbers as they are when they are rounded: each has changed to
// make up for the errors of the earlier ones in its row. The bits of the result do not depend on
// the team. REQUIRES: the numbers are finite.
[[nodiscard]] RoundedMatrix round_with_compensation(const RoundingForm& form,
                                                    const std::vector<float>& numbers, int64_t out,
                                                    const InputOrder& inputs,
                                                    kernels::ThreadTeam& team,
                                                    std::vector<float>* changed = nullptr);

}  // namespace dslaunch::compress
