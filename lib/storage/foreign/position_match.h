// Matches a model's parameters with positions in an optimizer that numbers its parameters but does
// not name them. Within a group, parameters are in the model's order, and each parameter is in at
// most one group. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::storage {

// The answer to the question whether a parameter may be at a position.
enum class PositionFit : uint8_t {
    kNo,
    kYes,
    kBlank  // the position contains nothing, so any parameter may be matched with it
};

// A match, or the reason why there is none.
struct PositionMatch {
    // The index of the parameter at each position, or -1 if the position is blank. Positions are
    // numbered across all groups.
    std::vector<int64_t> parameters;
    // The reason why there is no match; empty if `parameters` is the only possible match.
    std::string fault;
};

// Matches parameters with positions. GROUP_POSITIONS has the number of positions in each group.
// PARAMETERS_COUNT is the number of the model's parameters; if there are fewer positions, some
// parameters get no position. FITS(POSITION, PARAMETER) gets a position numbered across all groups.
// Time grows with positions and parameters; too many possibilities are reported as a fault.
[[nodiscard]] PositionMatch match_positions(
    const std::vector<int64_t>& group_positions, int64_t parameters_count,
    const std::function<PositionFit(int64_t, int64_t)>& fits);

}  // namespace dslaunch::storage
