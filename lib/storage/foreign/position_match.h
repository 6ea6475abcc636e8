// The match says which parameter of a model belongs to which place in an optimizer that numbers its
// parameters and has no names for them. Its groups keep the model's order, but share the parameters
// out. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::storage {

enum class PositionFit : uint8_t {
    kNo,
    kYes,
    kBlank  // the position holds nothing: any parameter may be there, and it does not matter which
};

struct PositionMatch {
    // The parameter of each position, the positions of all groups in a row; -1 for a blank one.
    std::vector<int64_t> parameters;
    // The reason why there is no match; empty: PARAMETERS is the only way.
    std::string fault;
};

// GROUP_POSITIONS: positions of each group, whose parameters stand in the model's order.
// PARAMETERS_COUNT: of the model; those beyond the positions have none. FITS(POSITION, PARAMETER)
// counts POSITION over all groups. Time grows with positions and parameters; where too many ways
// would have to be followed, that is the fault.
[[nodiscard]] PositionMatch match_positions(
    const std::vector<int64_t>& group_positions, int64_t parameters_count,
    const std::function<PositionFit(int64_t, int64_t)>& fits);

}  // namespace dslaunch::storage
