// What ranks do together: reduce gradient buckets, gather shards, broadcast, gather small strings,
// wait for each other. Where it stands: step plan -> executor -> Collectives -> shared arenas on a
// host, links between hosts.
//
// Order of sums: the local ranks of a host in order, then the hosts by node rank, in fp32, scaled
// once at the end; every rank reads the same bits. Every wait has a time limit and ends early when
// anyone fails: Error{kPeerLost} names the rank that was lost, Error{kHang} the one that did not
// come, and either poisons the group for all.
//
// The life of a bucket in generation g (1, 2, 3, … on every rank):
// - await_free(b, g): compute lane, before anything writes the slice. All local readers of
//   generation g - 1 are done.
// - post(b, g): compute lane, after the last Backward that adds to it.
// - reduce(b, g, …): communication lane. Waits for all local posts, sums this rank's part,
//   exchanges with other hosts.
// - await_reduced(b, g): whoever updates. Views of the sums, which lie distributed over the local
//   ranks' arenas.
// - release(b, g): after the last read of those views, by every local rank.
//
// Threads: these five may be called from any thread, each for one bucket at a time. Everything
// below them, and reduce when there are several hosts, is called by one thread at a time (the
// communication lane) and in one order on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/range.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/ranks/node_ranges.h"
#include "runtime/comm/ranks/topology.h"
#include "runtime/comm/traffic.h"

namespace dslaunch::runtime {

class HostGroup;
class Link;

using Generation = uint32_t;

// A reduced bucket as it lies: neighbours that tile [0, numel). Valid until release().
struct ReducedParts {
    struct Part {
        Range range;                    // within the bucket
        std::span<const float> values;  // [range.numel] fp32
    };
    int64_t numel = 0;
    std::vector<Part> parts;  // none of them empty

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
    // This rank's slice of the bucket: [numel] fp32, where .grad views point.
    [[nodiscard]] virtual std::span<float> bucket(BucketId bucket) = 0;

    // Every local rank has released GENERATION - 1. Before a bucket that shares its memory is
    // written, also await_free(the bucket that used it last, its last generation + 1).
    virtual void await_free(BucketId bucket, Generation generation) = 0;
    virtual void post(BucketId bucket, Generation generation) = 0;
    // sum over all ranks times SCALE (1 / world_size for the mean). Each host's sums are sent only
    // to the node that owns them, and those of kEveryNode to all; no DESTINATIONS: all to all, with
    // the same bits. REQUIRES: this rank has posted GENERATION; destinations tile the bucket and
    // are equal on all ranks.
    virtual void reduce(BucketId bucket, Generation generation, float scale,
                        std::span<const NodeRange> destinations) = 0;
    void reduce(BucketId bucket, Generation generation, float scale) {
        reduce(bucket, generation, scale, {});
    }
    // Between hosts with destinations, values are the sums only where this node or every node is
    // the destination.
    [[nodiscard]] virtual ReducedParts await_reduced(BucketId bucket, Generation generation) = 0;
    // REQUIRES: this rank has come out of await_reduced or await_sources, read or not.
    virtual void release(BucketId bucket, Generation generation) = 0;
    // Instead of reduce and await_reduced, on one host only, for an update that sums as it goes:
    // waits for all local posts and gives each local rank's slice, in order, to be read only until
    // release(). REQUIRES: one host.
    [[nodiscard]] virtual std::vector<const float*> await_sources(BucketId bucket,
                                                                  Generation generation) = 0;

    // BYTES of rank 0 to all. REQUIRES: the same length on all ranks.
    virtual void broadcast(std::span<std::byte> bytes) = 0;
    // A shared slice of node 0 to that slice of every host; nothing to do on one host but to wait.
    // All earlier writes to it on node 0 are seen by all afterwards.
    virtual void broadcast_shared(SliceId slice) = 0;
    // In memory that the host's ranks share: what OWNED says lies valid on its node comes to all
    // others; kEveryNode ranges stay as they are. Done by bridges, when all ranges are valid on
    // return; a no-op for the others, and nobody waits for local ranks: the caller orders writers
    // before and readers after, by signals. REQUIRES: owned (elements of element_bytes each) tiles
    // SLICE and is equal on all ranks.
    virtual void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                               std::span<const NodeRange> owned) = 0;
    // One string from each rank, by rank. Lengths may differ.
    [[nodiscard]] virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
    // values[i] = the sum over ranks of values[i], added in rank order in fp64. REQUIRES: equal
    // lengths.
    virtual void sum_ordered(std::span<double> values) = 0;
    virtual void barrier() = 0;

    // This rank has failed: all waits of all local ranks throw Error{kPeerLost} with TEXT, links
    // are cut. Any thread, does not block.
    virtual void poison(std::string_view text) = 0;
    [[nodiscard]] virtual Traffic traffic() const = 0;
};

struct CollectivesParts {
    Topology topology;
    const Arena* arena = nullptr;  // must outlive the result
    HostGroup* group = nullptr;    // must outlive the result
    std::unique_ptr<Link> link;  // to the same bridge of the other hosts; null when this rank is no
                                 // bridge
};

// Shared memory within a host, links between hosts. REQUIRES: link exactly where
// topology.is_bridge().
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(CollectivesParts parts);

}  // namespace dslaunch::runtime
