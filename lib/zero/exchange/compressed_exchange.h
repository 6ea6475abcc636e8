// The average of a bucket's values over hosts, sent in 1 bit per element, with error feedback in
// both directions. The ranks of a host write the values into memory that they share. The bridges
// compress them block by block, send each host the run of blocks that it averages, average the runs
// that they receive, compress the averages and send them back (plan/exchange/sign_runs.h). All
// hosts then hold the same bits. Data path: ZeRO state -> [here] -> Collectives. Source: Tang et
// al. 2021 (1-bit Adam), section 4. Threads: the communication lane; between steps any one thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/machine/zeroed_floats.h"
#include "plan/exchange/sign_runs.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/save/saved_state.h"
#include "runtime/state/saved_piece.h"
#include "zero/states/shard_map.h"

namespace dslaunch::zero {

// The arena's slice and signals for the exchange, the same on all ranks of a host.
struct ExchangeSlices {
    runtime::SliceId values;     // as long as the largest bucket
    runtime::SignalId filled;    // this rank's values are written
    runtime::SignalId averaged;  // this bridge's part is averaged
    runtime::SignalId taken;     // this rank no longer reads the values
};

// Averages over hosts; see the top of this file.
class CompressedExchange {
  public:
    // Adds to ARENA the slice and the signals that the exchange needs.
    [[nodiscard]] static ExchangeSlices add_slices(const plan::FlatLayout& layout,
                                                   runtime::ArenaLayout& arena);

    // All errors start at 0. REQUIRES: there are several hosts, and each holds a full copy. All
    // references must outlive this object.
    CompressedExchange(const ShardMap& map, const ExchangeSlices& slices,
                       const runtime::Arena& arena, runtime::HostGroup& group,
                       runtime::Collectives& collectives);

    // These calls make up the exchange of one bucket. Every rank makes them in this order, and all
    // ranks take the buckets in the same order. begin() waits until no rank of this host reads the
    // values of the last exchange, and returns the memory for the next values, [numel]. Each value
    // is written by one rank. average() reports that this rank has written its values; on a bridge
    // it also exchanges the bridge's part. averaged() waits for all bridges and returns the
    // averages, which are valid until end().
    [[nodiscard]] std::span<float> begin(int bucket);
    void average(int bucket);
    [[nodiscard]] std::span<const float> averaged(int bucket);
    void end();

    // Sets the errors to 0, at the end of a step. Either every rank calls it or no rank does.
    void clear();

    // Returns the names of the parameter states that are saved in addition to the optimizer's:
    // "server_error", the rounding error of the averages, then for each host H "worker_error.H",
    // the rounding error of the values that it sends. Returns no names while all errors are 0.
    [[nodiscard]] std::vector<std::string> state_names() const;
    // Adds this rank's pieces of the states in state_names(), which are numbered from FIRST on. The
    // pieces of bucket B are in unit UNIT + B.
    void add_pieces(int first, int unit, std::vector<runtime::SavedPiece>& pieces) const;
    // Reads the errors from SAVED. If SAVED comes from another number of hosts, every host takes
    // the mean of the hosts' errors, so that the sum of the errors over hosts stays the same.
    void load(runtime::SavedState& saved);

    // Returns the bytes of the errors that this rank keeps.
    [[nodiscard]] Bytes bytes() const;

  private:
    // The part of one bucket that a bridge works on.
    struct Part {
        plan::SignRuns runs;
        ZeroedFloats worker;  // errors of of_bridge(), one block after the other
        ZeroedFloats server;  // errors of this host's run
    };
    using Message = std::vector<std::byte>;
    using Blocks = std::span<const plan::LayoutBlock>;
    [[nodiscard]] int bridge() const { return map_.topology().local_rank; }
    [[nodiscard]] int node() const { return map_.topology().node_rank; }
    [[nodiscard]] int nodes() const { return map_.topology().node_count(); }
    [[nodiscard]] std::span<float> values(int bucket) const;
    void exchange(int bucket);
    static void compress(Blocks blocks, float factor, std::span<const float> values, float* errors,
                         Message& into);
    static void expand(Blocks blocks, const Message& from, bool adds, std::span<float> values);
    void swap(const std::vector<Message>& sends, std::vector<Message>& receives);
    template <typename Parts, typename Use>
    void for_each_error(Parts& parts, Use&& use) const;

    const ShardMap& map_;
    ExchangeSlices slices_;
    const runtime::Arena& arena_;
    runtime::HostGroup& group_;
    runtime::Collectives& collectives_;
    std::vector<Part> parts_;   // by trained bucket; empty if this rank is no bridge
    uint32_t exchanges_ = 0;    // exchanges begun so far
    bool has_errors_ = false;   // true once something was compressed since the errors were 0
    std::vector<Message> out_;  // by host
    std::vector<Message> in_;
};

}  // namespace dslaunch::zero
