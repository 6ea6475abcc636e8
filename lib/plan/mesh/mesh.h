// The place of each rank in the work: a grid of pipeline x data x tensor x sequence ranks over the
// slots of the hosts, in which the ranks that communicate most are on the same host. Data path:
// node sizes -> mesh -> groups of ranks, stages. Pure; every rank computes the same.
//
// The list of axes begins with the axis that communicates most. A block of an axis consists of the
// ranks whose coordinates differ only on this axis and the axes before it.
//   tensor    collectives in every layer, forward and backward; no computation hides them
//   sequence  all-to-alls in every layer around attention
//   shard     the ranks that together keep one copy of the states (ZeRO): parameters are gathered
//             for every layer and gradients reduced after it, both hidden by computation
//   replica   the copies of the states: each rank's shard of the gradients is summed once a step
//   pipeline  only two neighbours exchange the live values at a cut, hidden by computation
// Data parallelism is shard x replica. With one replica it is plain ZeRO, with more it is hybrid
// (hpZ, MiCS).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::plan {

// The axes of the grid, in the order of the list above.
enum class MeshAxis : uint8_t { kTensor, kSequence, kShard, kReplica, kPipeline };
inline constexpr int kMeshAxes = 5;
// Returns the name of AXIS as in the list above, such as "tensor".
[[nodiscard]] std::string_view mesh_axis_name(MeshAxis axis);

// The sizes of a grid by axis, or the coordinates of one rank (from 0).
using MeshIndex = std::array<int, kMeshAxes>;

// The number of ranks along each axis. The data axis is the shard axis times the replica axis.
struct MeshSizes {
    int tensor = 1;
    int sequence = 1;
    int data = 1;
    int shard = 0;  // ranks that keep one copy of the states, a divisor of data; 0: all data ranks
    int pipeline = 1;
};

// The place of every rank of a job in the grid and on the hosts.
class Mesh {
  public:
    // Places the grid on the hosts. NODE_SIZES are the numbers of ranks on each host, by node rank;
    // global ranks are numbered host by host. A block of an axis contains the ranks whose
    // coordinates on all later axes are equal. As many blocks as possible lie on a single host, for
    // every axis. If all hosts have the same size and whole blocks fill them, ranks are numbered
    // through the grid in the order of the axes. Throws Error{kConfig} if a size is below 1, if
    // SHARD does not divide DATA, or if the grid and the hosts have different numbers of ranks.
    [[nodiscard]] static Mesh make(const MeshSizes& sizes, const std::vector<int>& node_sizes);

    // Return facts about the grid: node_of returns the host of RANK, index_of returns its
    // coordinates, and rank_at returns the rank at the coordinates INDEX. All count from 0.
    // REQUIRES: arguments in range.
    [[nodiscard]] int world_size() const { return static_cast<int>(ranks_.size()); }
    [[nodiscard]] int size(MeshAxis axis) const { return sizes_[static_cast<size_t>(axis)]; }
    [[nodiscard]] int node_of(int rank) const { return nodes_[rank]; }
    [[nodiscard]] MeshIndex index_of(int rank) const;
    [[nodiscard]] int rank_at(const MeshIndex& index) const;

    // Returns the ranks that differ from RANK only along AXIS, and RANK itself, in the order of
    // their coordinate on AXIS.
    [[nodiscard]] std::vector<int> group(MeshAxis axis, int rank) const;
    // Returns all groups of AXIS.
    [[nodiscard]] std::vector<std::vector<int>> groups(MeshAxis axis) const;

    // Returns one line per rank: the rank, its host, and its coordinate on each axis with more than
    // one rank.
    [[nodiscard]] std::string table() const;

  private:
    Mesh() = default;

    MeshIndex sizes_{};
    std::vector<int> ranks_;      // ranks by position in the grid; the first axis changes fastest
    std::vector<int> positions_;  // positions by rank
    std::vector<int> nodes_;      // nodes by rank
};

// Returns the largest shard size for which every shard group can lie on one host: the largest
// divisor of SIZES.data for which the number of ranks on each host is a multiple of `tensor *
// sequence * shard`. Returns 1 if no larger size is possible.
[[nodiscard]] int largest_shard_on_hosts(const MeshSizes& sizes,
                                         const std::vector<int>& node_sizes);

}  // namespace dslaunch::plan
