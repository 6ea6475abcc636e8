// The place of each rank in the work: a grid of pipeline x data x tensor x sequence over the slots
// of the hosts, so that the ranks that exchange most are on one host. Data path: node sizes -> mesh
// -> groups of ranks, stages. Pure; every rank computes the same.
//
// The order of axes, the chattiest first; a block is the ranks that share all later coordinates.
//   tensor    collectives in every layer, forward and backward, that nothing hides
//   sequence  all-to-alls in every layer around attention
//   shard     the ranks that together keep one copy of states (ZeRO): parameters gathered for
//             every layer, gradients reduced after it, both hidden by computation
//   replica   copies of that: sums of this rank's shard of the gradients, once a step
//   pipeline  two neighbours only, the live values at a cut, hidden by computation
// Data parallelism is shard x replica; with one replica it is plain ZeRO, with more it is hybrid
// (hpZ, MiCS).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::plan {

enum class MeshAxis : uint8_t { kTensor, kSequence, kShard, kReplica, kPipeline };
inline constexpr int kMeshAxes = 5;
[[nodiscard]] std::string_view mesh_axis_name(MeshAxis axis);

// Sizes of a grid by axis, or one rank's place in it (from 0).
using MeshIndex = std::array<int, kMeshAxes>;

struct MeshSizes {
    int tensor = 1;
    int sequence = 1;
    int data = 1;
    int shard = 0;  // size of a shard, a divisor of data; 0: data
    int pipeline = 1;
};

class Mesh {
  public:
    // Lays the grid over hosts. NODE_SIZES are the ranks of each host by node rank; global ranks
    // count host by host. Of every size of block as many lie whole on one host as its slots allow;
    // on hosts of equal size that blocks fill, ranks count through the grid in the order of axes.
    // Throws Error{kConfig} if a size is below 1, SHARD does not divide DATA, or the ranks differ.
    [[nodiscard]] static Mesh make(const MeshSizes& sizes, const std::vector<int>& node_sizes);

    [[nodiscard]] int world_size() const { return static_cast<int>(ranks_.size()); }
    [[nodiscard]] int size(MeshAxis axis) const { return sizes_[static_cast<size_t>(axis)]; }
    [[nodiscard]] int node_of(int rank) const { return nodes_[rank]; }
    [[nodiscard]] MeshIndex index_of(int rank) const;
    [[nodiscard]] int rank_at(const MeshIndex& index) const;

    // Returns the ranks that differ from RANK only along AXIS, RANK included, by their index on it.
    [[nodiscard]] std::vector<int> group(MeshAxis axis, int rank) const;
    // Returns all groups of AXIS.
    [[nodiscard]] std::vector<std::vector<int>> groups(MeshAxis axis) const;

    // Returns one line per rank: rank, host, its place on the axes with more than one rank.
    [[nodiscard]] std::string table() const;

  private:
    Mesh() = default;

    MeshIndex sizes_{};
    std::vector<int> ranks_;      // ranks by position in the grid, axes in order
    std::vector<int> positions_;  // positions by rank
    std::vector<int> nodes_;      // nodes by rank
};

// Returns the largest shard of a data axis of SIZES.data whose every group can lie on one host: a
// divisor such that all hosts' slots are whole blocks of tensor x sequence x shard; else 1.
[[nodiscard]] int largest_shard_on_hosts(const MeshSizes& sizes,
                                         const std::vector<int>& node_sizes);

}  // namespace dslaunch::plan
