#include "plan/mesh/pipeline_scale.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

constexpr auto kShard = static_cast<size_t>(MeshAxis::kShard);
constexpr auto kReplica = static_cast<size_t>(MeshAxis::kReplica);
constexpr auto kPipeline = static_cast<size_t>(MeshAxis::kPipeline);

// The rank that runs STAGE in copy COPY of the pipeline.
int rank_of(const Mesh& mesh, int copy, int stage) {
    MeshIndex index{};
    index[kShard] = copy % mesh.size(MeshAxis::kShard);
    index[kReplica] = copy / mesh.size(MeshAxis::kShard);
    index[kPipeline] = stage;
    return mesh.rank_at(index);
}

}  // namespace

ScaleCost scale_cost(const ScaleRequest& request, const Mesh& mesh) {
    const int stages = request.shape.stages;
    DSL_CHECK(mesh.size(MeshAxis::kPipeline) == stages, "a mesh of {} stages for {}",
              mesh.size(MeshAxis::kPipeline), stages);
    ScaleCost cost;
    cost.ranks = mesh.world_size();
    cost.hosts = mesh.node_of(cost.ranks - 1) + 1;
    cost.data = mesh.size(MeshAxis::kShard) * mesh.size(MeshAxis::kReplica);
    for (int copy = 0; copy < cost.data; ++copy) {
        const auto node_of = [&](int part) {
            const int stage = place_of_part(request.schedule, request.shape, part).stage;
            return mesh.node_of(rank_of(mesh, copy, stage));
        };
        for (int part = 0; part + 1 < request.shape.parts(); ++part)
            if (node_of(part) != node_of(part + 1))
                cost.activations_sent +=
                    request.sent[part] * (2 * int64_t{request.shape.micro_batches});
    }
    double slowest_sum_s = 0;
    for (int stage = 0; stage < stages; ++stage) {
        const Bytes gradients = request.gradients[stage];
        std::set<int> nodes;
        for (int copy = 0; copy < cost.data; ++copy)
            nodes.insert(mesh.node_of(rank_of(mesh, copy, stage)));
        if (nodes.size() == 1) ++cost.data_groups_on_host;
        // Hosts add up among their own ranks first, then around a ring, and send the sums around
        // it.
        cost.gradients_sent += gradients * (2 * (std::ssize(nodes) - 1));
        slowest_sum_s =
            std::max(slowest_sum_s, request.rates.sum_s(static_cast<double>(gradients.value), 2,
                                                        {.ranks = cost.data, .hosts = cost.data}));
    }
    cost.pipelines_on_host = mesh.groups_on_one_host(MeshAxis::kPipeline);
    cost.step_s = request.pipeline_s + slowest_sum_s;
    return cost;
}

}  // namespace dslaunch::plan
