// Runs the kernels of a GPU on the processor: a loop over all threads of a grid calls the same
// functions that nvcc compiles (lib/kernels/cuda/grid_kernels.h).
#pragma once

#include <iterator>
#include <span>
#include <vector>

#include "kernels/cuda/grid_kernels.h"
#include "kernels/update_arguments.h"

namespace dslaunch::test {

// Calls body(place) for each thread of a grid over NUMEL elements.
template <typename Body>
void for_grid(int64_t numel, const Body& body) {
    const int64_t threads = kernels::blocks_over(numel) * kernels::kThreads;
    for (int64_t thread = 0; thread < threads; ++thread) body(kernels::GridPlace{thread, threads});
}

inline kernels::GridSources grid_sources(std::span<const float* const> sources) {
    return kernels::grid_sources(
        {sources.data(), nullptr, std::ssize(sources), kernels::NumberKind::kFp32});
}

template <typename Rule>
void grid_update_on_host(const kernels::UpdateArrays& arrays, kernels::ElementRange range,
                         const Rule& rule) {
    const kernels::GridUpdate update = kernels::grid_arguments(arrays, range);
    for_grid(range.numel,
             [&](const kernels::GridPlace& place) { kernels::grid_update(update, rule, place); });
}

inline double squares_on_host(const float* values, int64_t numel) {
    std::vector<double> lanes;
    for (int lane = 0; lane < kernels::kNormLanes; ++lane)
        lanes.push_back(kernels::lane_squares({values, numel}, lane));
    return kernels::add_lanes(lanes.data());
}

}  // namespace dslaunch::test
