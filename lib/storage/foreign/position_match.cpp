#include "storage/foreign/position_match.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace dslaunch::storage {
namespace {

constexpr size_t kStatesMax = 64;

using Way = std::vector<int64_t>;  // the same form as PositionMatch::parameters
// The partial assignments. The key says how many positions of each group are already used. The
// value has at most two assignments per key: a second one shows that the match is not unique.
using States = std::map<std::vector<int64_t>, std::vector<Way>>;

void add_way(States& states, const std::vector<int64_t>& taken, const Way& way) {
    std::vector<Way>& ways = states[taken];
    if (ways.size() < 2 && std::ranges::find(ways, way) == ways.end()) ways.push_back(way);
}

}  // namespace

PositionMatch match_positions(const std::vector<int64_t>& group_positions, int64_t parameters_count,
                              const std::function<PositionFit(int64_t, int64_t)>& fits) {
    const int64_t positions_count =
        std::accumulate(group_positions.begin(), group_positions.end(), int64_t{0});
    const int64_t spare = parameters_count - positions_count;
    if (spare < 0)
        return {{},
                fmt::format("there are {} positions for only {} parameters", positions_count,
                            parameters_count)};
    States states;
    states[std::vector<int64_t>(group_positions.size())] = {
        Way(static_cast<size_t>(positions_count), int64_t{-1})};
    for (int64_t parameter = 0; parameter < parameters_count; ++parameter) {
        States next;
        for (const auto& [taken, ways] : states) {
            const int64_t passed =
                parameter - std::accumulate(taken.begin(), taken.end(), int64_t{0});
            if (passed < spare)
                for (const Way& way : ways) add_way(next, taken, way);
            int64_t first = 0;  // the group's first position
            for (size_t group = 0; group < taken.size(); first += group_positions[group++]) {
                if (taken[group] == group_positions[group]) continue;
                const int64_t position = first + taken[group];
                const PositionFit fit = fits(position, parameter);
                if (fit == PositionFit::kNo) continue;
                std::vector<int64_t> more = taken;
                ++more[group];
                for (Way way : ways) {
                    if (fit == PositionFit::kYes) way[position] = parameter;
                    add_way(next, more, way);
                }
            }
        }
        if (next.empty())
            return {{}, fmt::format("parameter {} of the model fits no position", parameter)};
        if (next.size() > kStatesMax) return {{}, "there are too many ways to match them"};
        states = std::move(next);
    }
    const std::vector<Way>& ways = states.begin()->second;
    if (ways.size() > 1) return {{}, "there is more than one way to match them"};
    return {ways.front(), ""};
}

}  // namespace dslaunch::storage
