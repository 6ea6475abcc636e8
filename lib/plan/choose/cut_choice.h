// The choice among the legal places to cut at: few live values, whole layers, pieces of similar
// weight. Pure; the result depends on the model alone (never on batch, ranks or machine), so that
// every rank and every run cuts alike.
#pragma once

#include <cstdint>
#include <vector>

namespace dslaunch::plan {

struct CutPlace {
    int64_t position = 0;                // the cut is before this node
    int64_t live_values = 0;             // values alive here, without parameters and constants
    int64_t parameter_numel_before = 0;  // elements of the parameters first read before the
                                         // position
};

// Returns the positions of the cuts, ascending; SEGMENTS - 1 of them, or fewer if there are not
// enough places. SEGMENTS 0: by whole layers, at most kSegmentsAutoMax. 1: no cuts. Larger than
// places.size() + 1: every place.
[[nodiscard]] std::vector<int64_t> choose_cuts(const std::vector<CutPlace>& places,
                                               int64_t parameter_numel, int64_t segments);

inline constexpr int64_t kSegmentsAutoMax = 128;

}  // namespace dslaunch::plan
