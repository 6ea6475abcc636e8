// Small models and jobs for tests of mesh costs.
#pragma once

#include <fmt/core.h>

#include <vector>

#include "plan/choose/mesh_cost.h"

namespace dslaunch::test {

using namespace plan;

inline constexpr int64_t kLayerNumel = 1 << 18;
inline constexpr int64_t kLayerOutputs = 4096;
inline constexpr int64_t kLayerActivations = 64 << 10;

// Returns a job whose layers have one parameter each. A layer takes a second each for its forward,
// the gradients of its inputs and the gradients of its weights.
inline MeshRequest layered_job(int segments, std::vector<int> node_sizes) {
    MeshRequest request;
    request.model.batch_bytes = Bytes{512};
    for (int s = 0; s < segments; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.output_bytes = Bytes{kLayerOutputs};
        segment.activation_bytes = Bytes{kLayerActivations};
        segment.forward_peak = segment.activation_bytes + segment.output_bytes;
        segment.backward_peak = segment.forward_peak + segment.output_bytes;
        segment.weight_half_bytes = Bytes{kLayerActivations / 2};
        segment.forward_flops = 1000;
        segment.parameters = {s};
        request.model.parameters.push_back({segment.name + ".weight", kLayerNumel, 4, true});
        request.model.segments.push_back(segment);
    }
    request.times.assign(static_cast<size_t>(segments), {1, 1, 1});
    request.node_sizes = std::move(node_sizes);
    // One bucket per layer, cut into many blocks, as in larger models.
    request.layout = {.bucket_numel_max = kLayerNumel, .bucket_numel_min = 1, .block_numel = 1024};
    return request;
}

}  // namespace dslaunch::test
