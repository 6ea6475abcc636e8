// The operations that ranks do together: reduce gradient buckets, gather shards, broadcast, gather
// small strings, wait for each other. Data path: step plan -> executor -> Collectives -> shared
// arenas on a host, links between hosts.
//
// Sums have a fixed order: the local ranks of a host in order, then the hosts by node rank, in
// fp32, scaled once at the end. Every rank reads the same bits. Every wait has a time limit and
// ends early when anyone fails. Error{kPeerLost} names the rank that was lost, Error{kHang} the one
// that did not come, and either poisons the group for all.
//
// The life of a bucket in generation g (1, 2, 3, … on every rank):
// - await_free(b, g): the compute lane calls it before anything writes the slice. All local readers
//   of generation g - 1 are then done.
// - post(b, g): the compute lane calls it after the last Backward that adds to the bucket.
// - reduce(b, g, …): the communication lane waits for all local posts, sums this rank's part and
//   exchanges with other hosts.
// - await_reduced(b, g): the updater gets views of the sums, which lie distributed over the local
//   ranks' arenas.
// - release(b, g): every local rank calls it after its last read of those views.
//
// Threads: these five may be called from any thread, each for one bucket at a time. Everything
// below them, and reduce if there are several hosts, is called by one thread at a time (the
// communication lane) and in one order on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/range.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/ranks/node_ranges.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/comm/traffic.h"
#include "runtime/comm/wire_coding.h"

namespace dslaunch::runtime {

class HostGroup;
class Link;

using Generation = uint32_t;

// A reduced bucket as it lies in memory: neighbours that tile [0, numel). Valid until release().
struct ReducedParts {
    struct Part {
        Range range;                    // within the bucket
        std::span<const float> values;  // [range.numel] fp32
    };
    int64_t numel = 0;
    std::vector<Part> parts;  // each has elements

    // Copies the whole bucket. REQUIRES: into.size() == numel.
    void copy_to(std::span<float> into) const;
    // Calls use(range, values) for each piece of WANTED, in order.
    template <typename Use>
    void for_each_in(const Range& wanted, Use&& use) const {
        for (const Part& part : parts) {
            const Range both = intersect(part.range, wanted);
            if (both.numel > 0)
                use(both, part.values.subspan(static_cast<size_t>(both.begin - part.range.begin),
                                              static_cast<size_t>(both.numel)));
        }
    }
};

class Collectives {
  public:
    virtual ~Collectives() = default;

    [[nodiscard]] virtual const Topology& topology() const = 0;
    // Returns this rank's slice of the bucket, [numel] fp32, which .grad views point to.
    [[nodiscard]] virtual std::span<float> bucket(BucketId bucket) = 0;

    // Waits until every local rank has released GENERATION - 1. Before a bucket that shares its
    // memory is written, also call await_free(the bucket that used it last, its last generation +
    // 1).
    virtual void await_free(BucketId bucket, Generation generation) = 0;
    virtual void post(BucketId bucket, Generation generation) = 0;
    // Sums over all ranks and multiplies by SCALE (1 / world_size for the mean). Each host's sums
    // are sent only to the node that owns them, and sums of kEveryNode to all. Without
    // DESTINATIONS all sums go to all, with the same bits. CODING says how they travel between
    // hosts; the owner's node adds its own sum as it is. REQUIRES: this rank has posted GENERATION;
    // destinations tile the bucket and are equal on all ranks, and are given if values are packed.
    virtual void reduce(BucketId bucket, Generation generation, float scale,
                        std::span<const NodeRange> destinations, const ReduceCoding& coding) = 0;
    void reduce(BucketId bucket, Generation generation, float scale,
                std::span<const NodeRange> destinations = {}) {
        reduce(bucket, generation, scale, destinations, {});
    }
    // Returns the sums. Between hosts with destinations, values are the sums only if this node or
    // every node is the destination.
    [[nodiscard]] virtual ReducedParts await_reduced(BucketId bucket, Generation generation) = 0;
    // REQUIRES: this rank has come out of await_reduced or await_sources, read or not.
    virtual void release(BucketId bucket, Generation generation) = 0;
    // Does what reduce and await_reduced do, for sums over the ranks of one host, if its ranks read
    // no others.
    virtual void reduce_on_host(BucketId bucket, Generation generation, float scale) = 0;
    [[nodiscard]] virtual ReducedParts await_reduced_on_host(BucketId bucket,
                                                             Generation generation) = 0;
    // Replaces these two for an update that sums as it goes. Waits for all local posts and returns
    // each local rank's slice, in order. Only read them until release().
    [[nodiscard]] virtual std::vector<const float*> await_sources(BucketId bucket,
                                                                  Generation generation) = 0;

    // Copies BYTES of rank 0 to all. REQUIRES: the same length on all ranks.
    virtual void broadcast(std::span<std::byte> bytes) = 0;
    // Copies a shared slice of node 0 to that slice of every host. On one host it only waits. All
    // earlier writes to it on node 0 are seen by all afterwards.
    virtual void broadcast_shared(SliceId slice) = 0;
    // Brings ranges in memory that the host's ranks share to all nodes: OWNED says on which one
    // each is valid; kEveryNode ranges stay as they are. Bridges do it, and all ranges are valid
    // when they return. For other ranks it does nothing. Nobody waits for local ranks: the caller
    // orders writers before and readers after, by signals. CODING says how ranges travel; packed
    // ones are rounded on every node, the owner's included. REQUIRES: owned (elements of
    // element_bytes each) tiles SLICE and is equal on all ranks; values are packed only on hosts.
    virtual void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                               std::span<const NodeRange> owned, const GatherCoding& coding) = 0;
    void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                       std::span<const NodeRange> owned) {
        gather_ranges(slice, element_bytes, owned, {});
    }
    // Sends SENDS[q] to the same bridge of host q and gets RECEIVES[q] from there; this host's own
    // and empty ones are left out. REQUIRES: this rank is a bridge; equal lengths at both ends.
    virtual void swap_over_hosts(std::span<const std::span<const std::byte>> sends,
                                 std::span<const std::span<std::byte>> receives) = 0;
    // Waits until the transfers so far have been done by the device that does them, for callers
    // outside a step, where no executor watches its progress. On hosts they are done when they
    // return. Throws Error{kHang} after the time limit.
    virtual void settle() {}
    // Returns one string from each rank, by rank. Lengths may differ.
    [[nodiscard]] virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
    // Replaces values[i] by the sum of values[i] over ranks, added in rank order in fp64. REQUIRES:
    // equal lengths.
    virtual void sum_ordered(std::span<double> values) = 0;
    virtual void barrier() = 0;

    // Says that this rank has failed: all waits of all local ranks throw Error{kPeerLost} with
    // TEXT, and links are cut. Any thread may call it. It does not block.
    virtual void poison(std::string_view text) = 0;
    [[nodiscard]] virtual TrafficTable traffic() const = 0;
};

// Returns each rank's VALUE, by rank. All ranks call it, and run one program.
template <typename T>
requires std::is_trivially_copyable_v<T>
[[nodiscard]] std::vector<T> gather_values(Collectives& collectives, const T& value) {
    std::vector<T> values;
    for (const std::string& bytes :
         collectives.all_gather({reinterpret_cast<const char*>(&value), sizeof value}))
        bytes.copy(reinterpret_cast<char*>(&values.emplace_back()), sizeof value);
    return values;
}

struct CollectivesParts {
    Topology topology;
    const Arena* arena = nullptr;  // must outlive the result
    HostGroup* group = nullptr;    // must outlive the result
    // The link to the same bridge of the other hosts, null if this rank is no bridge.
    std::unique_ptr<Link> link;
};

// Makes collectives over shared memory within a host and links between hosts. REQUIRES: a link is
// given exactly if topology.is_bridge().
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(CollectivesParts parts);

}  // namespace dslaunch::runtime
