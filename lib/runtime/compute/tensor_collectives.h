// A tensor group with the ranks of a Collectives: processes, or threads, of one host or of several.
// On one host each rank writes its tensor, piece by piece, into its own part of shared memory and
// reads the others' there. The pieces pass through a ring of places that stay in the cache: a rank
// writes ahead of its reads, so that it seldom waits. Between hosts with equally many ranks of the
// group, the ranks of one local number, a column, send to each other from tensor to tensor, and a
// host's ranks pass on what came. Between other hosts all goes as messages. Large sums are
// reductions of buckets. Data path: arena, collectives -> tensor group -> graph/tensor. Threads:
// one at a time, as TensorGroup says.
#pragma once

#include <array>
#include <memory>

#include "base/bytes.h"
#include "graph/sharing/tensor_group.h"
#include "runtime/comm/collectives.h"

namespace dslaunch::runtime {

// The memory of a group in an arena: a ring of places, and buckets for large sums.
struct TensorGroupSlices {
    std::array<BucketId, 4> ring;
    Bytes piece;  // bytes of each place of the ring
    std::array<BucketId, 2> buckets;
    Bytes chunk;  // bytes of each bucket
};
// Adds two buckets of CHUNK, and a ring of places of at most 256 KiB, for each rank to ARENA.
// Larger tensors take several turns.
[[nodiscard]] TensorGroupSlices add_tensor_group(ArenaLayout& arena, Bytes chunk = mib(1));

// Makes the group of COLLECTIVES, which joins its ranks alone and must outlive it. The buckets of
// SLICES are this object's alone. Tensors on a device pass through the host's memory. Sums run in
// rank order; reductions between hosts of several ranks add each host's ranks in order, then the
// hosts.
[[nodiscard]] std::unique_ptr<graph::TensorGroup> make_tensor_group(
    Collectives& collectives, const TensorGroupSlices& slices);

}  // namespace dslaunch::runtime
