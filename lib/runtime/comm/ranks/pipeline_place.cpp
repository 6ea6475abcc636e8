#include "runtime/comm/ranks/pipeline_place.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::runtime {

PipelinePlace make_pipeline_place(const std::vector<int>& node_sizes,
                                  const std::vector<std::vector<int>>& stages, int rank) {
    const auto own = std::ranges::find_if(stages, [&](const std::vector<int>& members) {
        return std::ranges::binary_search(members, rank);
    });
    DSL_CHECK(own != stages.end(), "rank {} is in no stage", rank);
    PipelinePlace place;
    place.stage = static_cast<int>(own - stages.begin());
    place.stages = static_cast<int>(stages.size());
    place.members = *own;
    place.of_stage = Topology::of_member(node_sizes, *own, rank);
    const auto index = static_cast<size_t>(std::ranges::find(*own, rank) - own->begin());
    for (const std::vector<int>& members : stages) {
        DSL_CHECK(members.size() == own->size(), "stages of {} and {} ranks", members.size(),
                  own->size());
        place.pipeline.push_back(members[index]);
    }
    return place;
}

}  // namespace dslaunch::runtime
