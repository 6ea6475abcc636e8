#include "runtime/comm/ranks/topology.h"

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("Ranks count host by host") {
    struct Row {
        std::vector<int> node_sizes;
        int rank, node_rank, local_rank, bridges;
    };
    const std::vector<Row> rows = {
        {{1}, 0, 0, 0, 0},       {{4}, 3, 0, 3, 0},       {{2, 1}, 1, 0, 1, 1},
        {{2, 1}, 2, 1, 0, 1},    {{1, 2}, 2, 1, 1, 1},    {{3, 1, 1}, 3, 1, 0, 1},
        {{3, 1, 1}, 4, 2, 0, 1}, {{3, 2, 4}, 8, 2, 3, 2},
    };
    for (const Row& row : rows) {
        const Topology topology = Topology::of_rank(row.node_sizes, row.rank);
        CAPTURE(row.rank);
        CHECK(topology.rank() == row.rank);
        CHECK(topology.node_rank == row.node_rank);
        CHECK(topology.local_rank == row.local_rank);
        CHECK(topology.bridge_count() == row.bridges);
        CHECK(topology.is_bridge() == (row.local_rank < row.bridges));
    }
}

TEST_CASE("A rank outside of the nodes and an empty node are set-up errors") {
    const std::vector<std::pair<std::vector<int>, int>> bad = {
        {{}, 0}, {{2, 0}, 0}, {{2, -1}, 0}, {{2, 1}, 3}, {{2, 1}, -1}};
    for (const auto& [sizes, rank] : bad) {
        try {
            (void)Topology::of_rank(sizes, rank);
            FAIL("accepted rank " << rank);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kSetup);
        }
    }
}

TEST_CASE("stages over hosts are worlds of their own") {
    // Two hosts of 3 and 1 ranks. The stages are ranks 0 1 and 2 3, so the second stage is on both
    // hosts.
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
