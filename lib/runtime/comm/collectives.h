// The operations that ranks do together: reduce gradient buckets, gather shards, broadcast, gather
// small strings, wait for each other. Data path: step plan -> executor -> Collectives -> shared
// arenas on a host, links between hosts.
//
// Sums have a fixed order: the local ranks of a host in order, then the hosts by node rank, in
// fp32, scaled once at the end. Every rank reads the same bits. Every wait has a time limit and
// ends early when a rank fails. Error{kPeerLost} names the rank that was lost, Error{kHang} the
// rank that did not come. Both errors poison the group for all ranks.
//
// The life of a bucket in generation g (1, 2, 3, … on every rank):
// - await_free(b, g): the compute lane calls it before the slice is written. It waits until all
//   local readers of generation g - 1 are done.
// - post(b, g): the compute lane calls it after the last Backward that adds to the bucket.
// - reduce(b, g, …): the communication lane waits for all local posts, sums this rank's part and
//   exchanges it with other hosts.
// - await_reduced(b, g): the updater gets views of the sums, whose parts are in the arenas of
//   different local ranks.
// - release(b, g): every local rank calls it after it has last read these views.
//
// Threads: any thread may call these five functions, but a bucket is used by one thread at a time.
// One thread at a time (the communication lane) calls the functions declared below release, in the
// same order on all ranks. If there are several hosts, the same holds for reduce.
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
#include "base/error.h"
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

// The parts of a reduced bucket in memory: neighbouring ranges that tile [0, numel). Valid until
// release().
struct ReducedParts {
    // Neighbouring elements in the memory of one local rank.
    struct Part {
        Range range;                    // within the bucket
        std::span<const float> values;  // [range.numel] fp32
    };
    int64_t numel = 0;
    std::vector<Part> parts;  // no part is empty

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

// The operations of a group of ranks; see the top of this file.
class Collectives {
  public:
    virtual ~Collectives() = default;

    // Returns the ranks of the group and this rank's place among them.
    [[nodiscard]] virtual const Topology& topology() const = 0;
    // Returns this rank's slice of the bucket, [numel] fp32. The parameters' .grad tensors are
    // views of this slice.
    [[nodiscard]] virtual std::span<float> bucket(BucketId bucket) = 0;

    // Waits until every local rank has released generation GENERATION - 1 of the bucket. If several
    // buckets share memory, call it twice before writing to a bucket: once for this bucket, and
    // once for the bucket that used the memory last. In the second call, GENERATION is the last
    // generation of the earlier bucket, plus 1.
    virtual void await_free(BucketId bucket, Generation generation) = 0;
    virtual void post(BucketId bucket, Generation generation) = 0;
    // Sums the bucket over all ranks and multiplies the sums by SCALE (1 / world_size for the
    // mean). DESTINATIONS name the node that owns each range of sums; other hosts send their terms
    // only to this node. All nodes get the ranges of kEveryNode. Without DESTINATIONS, all nodes
    // get all sums, with the same bits. CODING says how values are packed between hosts; the owner
    // of a sum adds its own term unpacked. REQUIRES: this rank has posted GENERATION; destinations
    // tile the bucket and are equal on all ranks; if values are packed in 8 or 4 bits, destinations
    // are given.
    virtual void reduce(BucketId bucket, Generation generation, float scale,
                        std::span<const NodeRange> destinations, const ReduceCoding& coding) = 0;
    void reduce(BucketId bucket, Generation generation, float scale,
                std::span<const NodeRange> destinations = {}) {
        reduce(bucket, generation, scale, destinations, {});
    }
    // Returns the sums. If a reduction between hosts had destinations, this host has only the sums
    // whose destination is this node or every node; the other values are not sums.
    [[nodiscard]] virtual ReducedParts await_reduced(BucketId bucket, Generation generation) = 0;
    // Ends this rank's use of the sums. REQUIRES: await_reduced() or await_sources() has returned
    // on this rank; the values need not have been read.
    virtual void release(BucketId bucket, Generation generation) = 0;
    // Do the same as reduce() and await_reduced(), but sum only over the ranks of this host. Use
    // them if sums over all hosts are not needed.
    virtual void reduce_on_host(BucketId bucket, Generation generation, float scale) = 0;
    [[nodiscard]] virtual ReducedParts await_reduced_on_host(BucketId bucket,
                                                             Generation generation) = 0;
    // Replaces reduce() and await_reduced() for an update that sums the gradients itself. Waits
    // until all local ranks have posted, and returns each local rank's slice, in rank order. The
    // caller must not change the slices, and must not read them after release().
    [[nodiscard]] virtual std::vector<const float*> await_sources(BucketId bucket,
                                                                  Generation generation) = 0;

    // Copies BYTES from rank 0 to all ranks. REQUIRES: the length is the same on all ranks.
    virtual void broadcast(std::span<std::byte> bytes) = 0;
    // Copies the ranges of SLICE, memory that the host's ranks share, to all nodes. OWNED names the
    // node where each range is valid; ranges of kEveryNode are not copied. Only bridges do the
    // work: when the call returns on a bridge, all ranges are valid on its node. On other ranks,
    // the call does nothing. The call does not wait for local ranks: the caller uses signals to
    // order earlier writers and later readers. CODING says how values are packed between hosts.
    // Packed values are rounded on every node, also on their owner. REQUIRES: OWNED (elements of
    // ELEMENT_BYTES each) tiles SLICE and is equal on all ranks; CODING packs no values that are on
    // devices.
    virtual void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                               std::span<const NodeRange> owned, const GatherCoding& coding) = 0;
    void gather_ranges(std::span<std::byte> slice, int64_t element_bytes,
                       std::span<const NodeRange> owned) {
        gather_ranges(slice, element_bytes, owned, {});
    }
    // Exchanges bytes with other hosts: sends SENDS[q] to the bridge of host q that has this
    // bridge's index, and receives RECEIVES[q] from it. This host's own entries and empty entries
    // are skipped. REQUIRES: this rank is a bridge; lengths are equal at both ends.
    virtual void swap_over_hosts(std::span<const std::span<const std::byte>> sends,
                                 std::span<const std::span<std::byte>> receives) = 0;
    // Waits until the device has done all transfers so far. Called outside of steps, when no
    // executor watches the device's progress. On hosts, transfers are done when their calls return.
    // Throws Error{kHang} after the time limit.
    virtual void settle() {}
    // Returns one string from each rank, by rank. Lengths may differ.
    [[nodiscard]] virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
    // Replaces values[i] by the sum of values[i] over ranks, added in rank order in fp64. REQUIRES:
    // lengths are equal.
    virtual void sum_ordered(std::span<double> values) = 0;
    virtual void barrier() = 0;

    // Reports that this rank has failed: all waits of all local ranks throw Error{kPeerLost} with
    // TEXT, and links are cut. Any thread may call it. It does not block.
    virtual void poison(std::string_view text) = 0;
    [[nodiscard]] virtual TrafficTable traffic() const = 0;
};

// Returns each rank's VALUE, by rank. All ranks call it. Throws Error{kInternal} if the value has a
// different size in the build that another rank runs.
template <typename T>
requires std::is_trivially_copyable_v<T>
[[nodiscard]] std::vector<T> gather_values(Collectives& collectives, const T& value) {
    std::vector<T> values;
    for (const std::string& bytes :
         collectives.all_gather({reinterpret_cast<const char*>(&value), sizeof value})) {
        if (bytes.size() != sizeof value)
            fail(ExitCode::kInternal, "a rank that runs another build of dsworker sent {} bytes",
                 bytes.size());
        bytes.copy(reinterpret_cast<char*>(&values.emplace_back()), sizeof value);
    }
    return values;
}

// The objects that collectives are made of.
struct CollectivesParts {
    Topology topology;
    const Arena* arena = nullptr;  // must outlive the result
    HostGroup* group = nullptr;    // must outlive the result
    // The link to the same bridge of the other hosts, null if this rank is not a bridge.
    std::unique_ptr<Link> link;
};

// Makes collectives over shared memory within a host and links between hosts. REQUIRES: a link is
// given if and only if topology.is_bridge().
[[nodiscard]] std::unique_ptr<Collectives> make_collectives(CollectivesParts parts);

}  // namespace dslaunch::runtime
