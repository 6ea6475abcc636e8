#include "plan/mesh/mesh.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "base/text/text_table.h"

namespace dslaunch::plan {
namespace {

constexpr std::array<std::string_view, kMeshAxes> kAxisNames = {"tensor", "sequence", "shard",
                                                                "replica", "pipeline"};

using Block = std::vector<int>;  // ranks, in the order of their positions in the grid

MeshIndex checked_sizes(const MeshSizes& sizes) {
    const auto require = [](int size, const char* name) {
        if (size < 1)
            fail(ExitCode::kConfig, "a mesh cannot have a {} size of {}; it must be at least 1",
                 name, size);
    };
    require(sizes.tensor, "tensor");
    require(sizes.sequence, "sequence");
    require(sizes.data, "data");
    require(sizes.pipeline, "pipeline");
    const int shard = sizes.shard == 0 ? sizes.data : sizes.shard;
    if (shard < 1 || sizes.data % shard != 0)
        fail(ExitCode::kConfig,
             "{} data-parallel ranks cannot be divided into groups of {} that share optimizer "
             "states; the group size must be a divisor of {}",
             sizes.data, sizes.shard, sizes.data);
    return {sizes.tensor, sizes.sequence, shard, sizes.data / shard, sizes.pipeline};
}

// Throws Error{kConfig} if the number of ranks in the grid differs from the number of ranks on all
// hosts. Called before any product of sizes is stored in an int.
void require_ranks(const MeshSizes& sizes, const std::vector<int>& node_sizes) {
    double wanted = 1;
    for (const int size : {sizes.tensor, sizes.sequence, sizes.data, sizes.pipeline})
        wanted *= size;
    int64_t ranks = 0;
    for (const int node : node_sizes) {
        if (node < 1)
            fail(ExitCode::kConfig, "a host of the mesh has {} ranks, but must have at least 1",
                 node);
        ranks += node;
    }
    if (wanted != static_cast<double>(ranks) || ranks > std::numeric_limits<int>::max())
        fail(ExitCode::kConfig,
             "a mesh of pipeline {} x data {} x tensor {} x sequence {} needs {:.0f} ranks, but {} "
             "{} {}: change a size, or the number of slots",
             sizes.pipeline, sizes.data, sizes.tensor, sizes.sequence, wanted,
             node_sizes.size() == 1 ? "the host has" : "the hosts have", ranks,
             ranks == 1 ? "slot" : "slots");
}

// Removes as many whole blocks of BLOCK_RANKS ranks as possible from the front of each host's free
// ranks, and returns them.
std::vector<Block> take_whole(std::vector<Block>& free, int block_ranks) {
    std::vector<Block> taken;
    for (Block& ranks : free) {
        const auto whole = std::ssize(ranks) / block_ranks;
        for (std::ptrdiff_t b = 0; b < whole; ++b)
            taken.emplace_back(ranks.begin() + b * block_ranks,
                               ranks.begin() + (b + 1) * block_ranks);
        ranks.erase(ranks.begin(), ranks.begin() + whole * block_ranks);
    }
    return taken;
}

void sort_blocks(std::vector<Block>& blocks) {
    std::sort(blocks.begin(), blocks.end(),
              [](const Block& a, const Block& b) { return a.front() < b.front(); });
}

// Returns larger blocks, each made of PARTS neighbouring smaller blocks.
std::vector<Block> assemble(std::vector<Block> smaller, int parts) {
    sort_blocks(smaller);
    DSL_CHECK(smaller.size() % static_cast<size_t>(parts) == 0,
              "{} blocks cannot be divided into groups of {}", smaller.size(), parts);
    std::vector<Block> larger;
    for (size_t b = 0; b < smaller.size(); ++b) {
        if (b % static_cast<size_t>(parts) == 0) larger.emplace_back();
        larger.back().insert(larger.back().end(), smaller[b].begin(), smaller[b].end());
    }
    return larger;
}

// Returns the rank at each position of the grid. First places the largest blocks that fit on one
// host, then smaller blocks in the remaining slots. Blocks that fit on no single host are then made
// of smaller blocks.
std::vector<int> lay_out(const MeshIndex& sizes, const std::vector<int>& node_sizes) {
    std::vector<Block> free;
    int first = 0;
    for (const int node : node_sizes) {
        Block ranks(static_cast<size_t>(node));
        std::iota(ranks.begin(), ranks.end(), first);
        first += node;
        free.push_back(std::move(ranks));
    }
    std::array<std::vector<Block>, kMeshAxes> whole;
    int block_ranks = first;
    for (size_t axis = kMeshAxes; axis-- > 0; block_ranks /= sizes[axis])
        whole[axis] = take_whole(free, block_ranks);
    std::vector<Block> blocks = take_whole(free, 1);
    for (size_t axis = 0; axis < kMeshAxes; ++axis) {
        blocks = assemble(std::move(blocks), sizes[axis]);
        blocks.insert(blocks.end(), whole[axis].begin(), whole[axis].end());
    }
    return blocks.at(0);
}

}  // namespace

std::string_view mesh_axis_name(MeshAxis axis) {
    return kAxisNames[static_cast<size_t>(axis)];
}

Mesh Mesh::make(const MeshSizes& sizes, const std::vector<int>& node_sizes) {
    Mesh mesh;
    mesh.sizes_ = checked_sizes(sizes);
    require_ranks(sizes, node_sizes);
    mesh.ranks_ = lay_out(mesh.sizes_, node_sizes);
    mesh.positions_.resize(mesh.ranks_.size());
    for (size_t position = 0; position < mesh.ranks_.size(); ++position)
        mesh.positions_[mesh.ranks_[position]] = static_cast<int>(position);
    for (size_t node = 0; node < node_sizes.size(); ++node)
        mesh.nodes_.insert(mesh.nodes_.end(), static_cast<size_t>(node_sizes[node]),
                           static_cast<int>(node));
    return mesh;
}

MeshIndex Mesh::index_of(int rank) const {
    MeshIndex index{};
    int position = positions_.at(static_cast<size_t>(rank));
    for (size_t axis = 0; axis < kMeshAxes; ++axis) {
        index[axis] = position % sizes_[axis];
        position /= sizes_[axis];
    }
    return index;
}

int Mesh::rank_at(const MeshIndex& index) const {
    int position = 0;
    for (size_t axis = kMeshAxes; axis-- > 0;) position = position * sizes_[axis] + index[axis];
    return ranks_.at(static_cast<size_t>(position));
}

std::vector<int> Mesh::group(MeshAxis axis, int rank) const {
    MeshIndex index = index_of(rank);
    std::vector<int> ranks;
    for (int at = 0; at < size(axis); ++at) {
        index[static_cast<size_t>(axis)] = at;
        ranks.push_back(rank_at(index));
    }
    return ranks;
}

std::vector<std::vector<int>> Mesh::groups(MeshAxis axis) const {
    std::vector<std::vector<int>> groups;
    for (const int rank : ranks_)
        if (index_of(rank)[static_cast<size_t>(axis)] == 0) groups.push_back(group(axis, rank));
    return groups;
}

std::string Mesh::table() const {
    std::vector<std::vector<std::string>> rows{{"rank", "host"}};
    for (int rank = 0; rank < world_size(); ++rank)
        rows.push_back({std::to_string(rank), std::to_string(node_of(rank))});
    for (size_t axis = 0; axis < kMeshAxes; ++axis) {
        if (sizes_[axis] == 1) continue;
        rows.front().emplace_back(kAxisNames[axis]);
        for (int rank = 0; rank < world_size(); ++rank)
            rows[static_cast<size_t>(rank) + 1].push_back(std::to_string(index_of(rank)[axis]));
    }
    return text_table(rows, {.align = ">>>>>>>"});
}

int largest_shard_on_hosts(const MeshSizes& sizes, const std::vector<int>& node_sizes) {
    const int block = sizes.tensor * sizes.sequence;
    int best = 1;
    for (int shard = 2; shard <= sizes.data; ++shard) {
        if (sizes.data % shard != 0) continue;
        const bool fits = std::all_of(node_sizes.begin(), node_sizes.end(), [&](int node) {
            return node % (int64_t{block} * shard) == 0;
        });
        if (fits) best = shard;
    }
    return best;
}

}  // namespace dslaunch::plan
