// Matches a model's parameters with places in an optimizer that numbers its parameters but does not
// name them. Each group keeps the model's order, and each parameter is in one group. Pure.
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
    // The parameter of each position, with the positions of all groups in a row; -1: a blank one.
    std::vector<int64_t> parameters;
    // The reason why there is no match; empty: PARAMETERS is the only one.
    std::string fault;
};

// Matches the positions. GROUP_POSITIONS are each group's, whose parameters stand in the model's
// order. PARAMETERS_COUNT is the model's; parameters beyond the positions have none. FITS(POSITION,
// PARAMETER) counts POSITION over all groups. Time grows with positions and parameters; too many
// ways to follow are a fault.
[[nodiscard]] PositionMatch match_positions(
    const std::vector<int64_t>& group_positions, int64_t parameters_count,
    const std::function<PositionFit(int64_t, int64_t)>& fits);

}  // namespace dslaunch::storage
