#include "runtime/comm/ranks/pipeline_place.h"

#include "support/catch.h"

namespace dslaunch {

using namespace runtime;

TEST_CASE("stages over hosts are worlds of their own") {
    // Two hosts of 3 and 1; stages of ranks 0 1 and 2 3, so that the second one lies on both.
    const std::vector<std::vector<int>> stages = {{0, 1}, {2, 3}};
    const PipelinePlace first = make_pipeline_place({3, 1}, stages, 1);
    CHECK(first.stage == 0);
    CHECK(first.of_stage.node_sizes == std::vector<int>{2});
    CHECK(first.of_stage.rank() == 1);
    CHECK(first.pipeline == std::vector<int>{1, 3});
    const PipelinePlace last = make_pipeline_place({3, 1}, stages, 3);
    CHECK(last.stage == 1);
    CHECK(last.of_stage.node_sizes == std::vector<int>{1, 1});
    CHECK(last.of_stage.node_rank == 1);
    CHECK(last.of_stage.local_rank == 0);
    CHECK(last.members == std::vector<int>{2, 3});
}

TEST_CASE("one stage is the world itself") {
    for (int rank = 0; rank < 4; ++rank) {
        const PipelinePlace place = make_pipeline_place({1, 3}, {{0, 1, 2, 3}}, rank);
        CHECK_FALSE(place.is_pipeline());
        CHECK(place.of_stage.node_sizes == std::vector<int>{1, 3});
        CHECK(place.of_stage.rank() == rank);
    }
}

}  // namespace dslaunch
