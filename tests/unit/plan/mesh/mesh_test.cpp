#include "plan/mesh/mesh.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace plan;

namespace {

constexpr std::array<MeshAxis, kMeshAxes> kAxes = {MeshAxis::kTensor, MeshAxis::kSequence,
                                                   MeshAxis::kShard, MeshAxis::kReplica,
                                                   MeshAxis::kPipeline};

// Splits RANKS into hosts of random sizes.
std::vector<int> random_hosts(int ranks, std::mt19937& random) {
    std::vector<int> hosts;
    while (ranks > 0) {
        const int host = std::min(ranks, 1 + static_cast<int>(random() % 11));
        hosts.push_back(host);
        ranks -= host;
    }
    return hosts;
}

// Returns the number of AXIS's groups whose ranks are all on one host.
int64_t groups_on_one_host(const Mesh& mesh, MeshAxis axis) {
    return std::ranges::count_if(mesh.groups(axis), [&](const std::vector<int>& ranks) {
        return std::ranges::all_of(
            ranks, [&](int rank) { return mesh.node_of(rank) == mesh.node_of(ranks.front()); });
    });
}

std::string refusal(const MeshSizes& sizes, const std::vector<int>& hosts) {
    return test::error_of(ExitCode::kConfig, [&] { static_cast<void>(Mesh::make(sizes, hosts)); });
}

// Returns the number of groups of SIZE ranks that the hosts can hold as a whole.
int whole_groups(const std::vector<int>& hosts, int size) {
    int groups = 0;
    for (const int host : hosts) groups += host / size;
    return groups;
}

// Returns the number of blocks of ranks that share the indices after AXIS and are on one host.
int blocks_on_one_host(const Mesh& mesh, size_t axis) {
    std::map<std::vector<int>, std::set<int>> hosts;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
        const MeshIndex index = mesh.index_of(rank);
        hosts[{index.begin() + static_cast<std::ptrdiff_t>(axis) + 1, index.end()}].insert(
            mesh.node_of(rank));
    }
    return static_cast<int>(std::count_if(
        hosts.begin(), hosts.end(), [](const auto& block) { return block.second.size() == 1; }));
}

}  // namespace

TEST_CASE("a mesh gives every rank one place, and hosts hold as many whole blocks as they can") {
    std::mt19937 random(3);
    for (const int tensor : {1, 2, 3, 4, 7})
        for (const int sequence : {1, 2, 5})
            for (const int shard : {1, 2, 3})
                for (const int replica : {1, 2})
                    for (const int pipeline : {1, 2, 3, 5}) {
                        const int ranks = tensor * sequence * shard * replica * pipeline;
                        const std::vector<int> hosts = random_hosts(ranks, random);
                        const Mesh mesh =
                            Mesh::make({tensor, sequence, shard * replica, shard, pipeline}, hosts);
                        REQUIRE(mesh.world_size() == ranks);
                        std::set<MeshIndex> places;
                        for (int rank = 0; rank < ranks; ++rank) {
                            places.insert(mesh.index_of(rank));
                            REQUIRE(mesh.rank_at(mesh.index_of(rank)) == rank);
                        }
                        REQUIRE(std::ssize(places) == ranks);
                        int block = 1;
                        for (size_t axis = 0; axis < kMeshAxes; ++axis) {
                            block *= mesh.size(kAxes[axis]);
                            REQUIRE(blocks_on_one_host(mesh, axis) == whole_groups(hosts, block));
                        }
                        CHECK(groups_on_one_host(mesh, MeshAxis::kTensor) ==
                              whole_groups(hosts, tensor));
                    }
}

TEST_CASE("the groups of each axis tile the ranks, and a group is the same for all its ranks") {
    std::mt19937 random(5);
    for (const MeshSizes& sizes : {MeshSizes{2, 1, 4, 2, 3}, MeshSizes{3, 2, 1, 0, 2},
                                   MeshSizes{1, 1, 7, 0, 5}, MeshSizes{1, 1, 1, 0, 13}}) {
        const int ranks = sizes.tensor * sizes.sequence * sizes.data * sizes.pipeline;
        const Mesh mesh = Mesh::make(sizes, random_hosts(ranks, random));
        for (const MeshAxis axis : kAxes) {
            std::vector<int> seen;
            for (const std::vector<int>& group : mesh.groups(axis)) {
                REQUIRE(std::ssize(group) == mesh.size(axis));
                for (const int rank : group) {
                    CHECK(mesh.group(axis, rank) == group);
                    seen.push_back(rank);
                }
            }
            std::sort(seen.begin(), seen.end());
            std::vector<int> all(static_cast<size_t>(ranks));
            std::iota(all.begin(), all.end(), 0);
            CHECK(seen == all);
        }
    }
}

TEST_CASE("on equal hosts ranks count through the grid, tensor first and pipeline last") {
    const Mesh mesh = Mesh::make({2, 1, 4, 2, 2}, {4, 4, 4, 4});
    for (int rank = 0; rank < 16; ++rank)
        CHECK(mesh.index_of(rank) == MeshIndex{rank % 2, 0, rank / 2 % 2, rank / 4 % 2, rank / 8});
    CHECK(mesh.group(MeshAxis::kPipeline, 5) == std::vector<int>{5, 13});
    CHECK(mesh.group(MeshAxis::kShard, 5) == std::vector<int>{5, 7});
    CHECK(groups_on_one_host(mesh, MeshAxis::kShard) == 8);
    CHECK(groups_on_one_host(mesh, MeshAxis::kReplica) == 0);
    CHECK(Mesh::make({1, 1, 2, 0, 2}, {2, 2}).table() ==
          "rank  host  shard  pipeline\n"
          "   0     0      0         0\n"
          "   1     0      1         0\n"
          "   2     1      0         1\n"
          "   3     1      1         1\n");
}

TEST_CASE("on uneven hosts a tensor group does not cross them where another order avoids it") {
    // Ranks in order of number, {0 1 2 3} and {4 5 6 7}, would cross hosts of 2, 4, 2 and 4.
    const Mesh mesh = Mesh::make({4, 1, 3, 0, 1}, {2, 4, 2, 4});
    CHECK(mesh.groups(MeshAxis::kTensor) ==
          std::vector<std::vector<int>>{{0, 1, 6, 7}, {2, 3, 4, 5}, {8, 9, 10, 11}});
    CHECK(groups_on_one_host(mesh, MeshAxis::kTensor) == 2);
}

TEST_CASE("the largest shard that stays on the hosts divides their slots and the data axis") {
    CHECK(largest_shard_on_hosts({1, 1, 16, 0, 1}, {8, 8}) == 8);
    CHECK(largest_shard_on_hosts({2, 1, 8, 0, 1}, {8, 8}) == 4);
    CHECK(largest_shard_on_hosts({1, 1, 12, 0, 1}, {8, 4}) == 4);
    CHECK(largest_shard_on_hosts({1, 1, 6, 0, 2}, {8, 4}) == 2);
    CHECK(largest_shard_on_hosts({1, 1, 13, 0, 1}, {8, 5}) == 1);
    for (const int shard : {2, 4, 8})
        CHECK(groups_on_one_host(Mesh::make({1, 1, 16, shard, 1}, {8, 8}), MeshAxis::kShard) ==
              16 / shard);
}

TEST_CASE("a mesh that the hosts cannot hold is refused with both numbers") {
    CHECK(refusal({1, 1, 2, 0, 4}, {3, 4}) ==
          "a mesh of pipeline 4 x data 2 x tensor 1 x sequence 1 needs 8 ranks, but the hosts have "
          "7 slots: change a size, or the number of slots");
    CHECK(refusal({0, 1, 1, 0, 1}, {1}) ==
          "a mesh cannot have a tensor size of 0; it must be at least 1");
    CHECK(refusal({1, 1, 6, 4, 1}, {6}) ==
          "6 data-parallel ranks cannot be divided into groups of 4 that share optimizer states; "
          "the group size must be a divisor of 6");
    CHECK(refusal({1, 1, 1, 0, 1}, {0, 1}) ==
          "a host of the mesh has 0 ranks, but must have at least 1");
    // 65,536 x 65,536 x 2 is 2 to the 33rd.
    CHECK_THAT(refusal({65536, 65536, 2, 0, 1}, {2}), Catch::Contains("needs 8589934592 ranks"));
}

}  // namespace dslaunch
