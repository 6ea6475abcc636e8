// The average of a bucket's values over hosts in 1 bit an element, with error feedback on both
// ways. The ranks of a host write the values into memory that they share. The bridges compress them
// block by block, send every host its run, average the runs they get, compress the averages and
// send them back (plan/exchange/sign_runs.h). All hosts then hold the same bits. Data path: ZeRO
// state -> [here] -> Collectives. Source: Tang et al. 2021 (1-bit Adam), section 4. Threads: the
// communication lane; between steps any one thread.
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

struct ExchangeSlices {
    runtime::SliceId values;     // of the largest bucket
    runtime::SignalId filled;    // this rank's values are written
    runtime::SignalId averaged;  // this bridge's part is averaged
    runtime::SignalId taken;     // this rank reads them no more
};

class CompressedExchange {
  public:
    [[nodiscard]] static ExchangeSlices add_slices(const plan::FlatLayout& layout,
                                                   runtime::ArenaLayout& arena);

    // All errors are 0. REQUIRES: several hosts, each of which holds a copy. All references must
    // outlive this.
    CompressedExchange(const ShardMap& map, const ExchangeSlices& slices,
                       const runtime::Arena& arena, runtime::HostGroup& group,
                       runtime::Collectives& collectives);

    // The calls of a bucket's exchange, in this order on every rank and by the same buckets on all.
    // begin() waits until nobody of this host reads the values of the last exchange, and returns
    // the memory of the next, [numel]; one rank writes each element. average() says that this rank
    // has written its own, and as a bridge exchanges its part. averaged() waits for all bridges and
    // returns the averages, which are valid until end().
    [[nodiscard]] std::span<float> begin(int bucket);
    void average(int bucket);
    [[nodiscard]] std::span<const float> averaged(int bucket);
    void end();

    // Sets the errors to 0. Every rank or none calls it at the end of a step.
    void clear();

    // Returns the names of the parameters' states that are saved beside the optimizer's:
    // "server_error", the loss of the averages, then "worker_error.H" for each host H, its loss in
    // sending. There are none while they are all 0.
    [[nodiscard]] std::vector<std::string> state_names() const;
    // Adds this rank's pieces of them. The first is the parameters' state FIRST. Pieces of bucket B
    // are unit UNIT + B.
    void add_pieces(int first, int unit, std::vector<runtime::SavedPiece>& pieces) const;
    // Takes the errors of SAVED. If it has another number of hosts, every host takes their mean, so
    // that the sum of the open errors over hosts stays the same.
    void load(runtime::SavedState& saved);

    [[nodiscard]] Bytes bytes() const;

  private:
    // A bridge's work on one bucket.
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
    std::vector<Part> parts_;   // by trained bucket; none if this rank is no bridge
    uint32_t exchanges_ = 0;    // begun so far
    bool has_errors_ = false;   // true once something has been compressed since they were 0
    std::vector<Message> out_;  // by host
    std::vector<Message> in_;
};

}  // namespace dslaunch::zero
