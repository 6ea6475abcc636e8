// Chooses, from the legal places, the places where the model is cut. It prefers places between
// whole layers with few live values, and pieces with similar numbers of parameters. Pure. The
// result depends on the model alone (never on batch, ranks or machine), so every rank and every run
// makes the same cuts.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch::plan {

// A legal place for a cut.
struct CutPlace {
    int64_t position = 0;                // the cut is before this node
    int64_t live_values = 0;             // values alive here, without parameters and constants
    int64_t parameter_numel_before = 0;  // elements of all parameters that are first read before
                                         // position
};

// Returns the positions of the cuts, ascending: SEGMENTS - 1 of them, or fewer if there are not
// enough places. If SEGMENTS is 0, cuts between whole layers into at most kSegmentsAutoMax
// segments. If it is 1, makes no cuts. If it is larger than places.size() + 1, cuts at every place.
[[nodiscard]] std::vector<int64_t> choose_cuts(const std::vector<CutPlace>& places,
                                               int64_t parameter_numel, int64_t segments);

inline constexpr int64_t kSegmentsAutoMax = 128;

}  // namespace dslaunch::plan
