// A tensor group over a Collectives. Its ranks are processes or threads, on one host or on several.
// On one host each rank writes its tensor, piece by piece, into its own part of shared memory, and
// reads the other ranks' tensors from their parts. The pieces pass through a ring of places that
// stay in the cache: a rank writes ahead of its reads, so that it seldom waits. If the group has
// equally many ranks on all hosts, the ranks with the same local rank form a column: they send
// tensors directly to each other, and the ranks of a host pass on to each other what they received.
// Otherwise everything is sent as messages between hosts. Large sums are reduced in buckets. Data
// path: arena, collectives -> tensor group -> graph/tensor. Threads: one thread at a time (see
// TensorGroup).
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
// Adds memory for a group to ARENA. Each rank gets two buckets of CHUNK, and a ring whose places
// have at most 256 KiB. Larger tensors are sent in several turns.
[[nodiscard]] TensorGroupSlices add_tensor_group(ArenaLayout& arena, Bytes chunk = mib(1));

// Makes the group whose ranks are exactly the ranks of COLLECTIVES. COLLECTIVES must outlive the
// result. Only this object may use the buckets of SLICES. Tensors on a device are copied through
// the host's memory. Sums are added in rank order, except in reductions between hosts with several
// ranks: these add the ranks of each host first, and then the sums of the hosts.
[[nodiscard]] std::unique_ptr<graph::TensorGroup> make_tensor_group(
    Collectives& collectives, const TensorGroupSlices& slices);

}  // namespace dslaunch::runtime
