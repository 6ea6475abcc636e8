// Rounds weights one input after the other, and changes the weights that are not yet rounded so
// that the layer's outputs change least: GPTQ (Frantar et al. 2022, arXiv:2210.17323), in the order
// of the inputs. Data path: weights and inverse_factor.h -> [here] -> packed_tensors.h. One thread
// calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/rounding.h"
#include "kernels/thread_team.h"

namespace dslaunch::compress {

// Rounds NUMBERS, [out, in]. FACTOR: inverse_factor() of the moments of the layer's inputs, [in,
// in]. A group's scale is chosen when its first weight is reached, for the weights as they then
// are. The bits do not depend on the team. REQUIRES: the numbers are finite.
[[nodiscard]] RoundedMatrix round_with_compensation(const RoundingForm& form,
                                                    std::vector<float> numbers, int64_t out,
                                                    const std::vector<float>& factor,
                                                    kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
