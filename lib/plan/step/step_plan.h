// The step plan: one optimizer step of one rank as a list of instructions, known before it runs.
// Plain data without LibTorch: it is printed, costed, simulated, hashed and checked;
// runtime/executor.h runs it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/kinds/traffic_kind.h"
#include "plan/exchange/exchange.h"
#include "plan/layout/flat_layout.h"
#include "plan/layout/partition.h"
#include "plan/layout/state_chunks.h"
#include "plan/model/model_info.h"
#include "plan/pipeline/stage_work.h"
#include "plan/step/between_hosts.h"
#include "plan/step/lagging.h"

namespace dslaunch::plan {

// The kinds of instructions, each with the segment, bucket or chunk that it has.
enum class Op : uint8_t {
    kLoad,    // take the next micro batch from the data thread
    kAwait,   // wait until every local rank has written its part of a bucket's parameters (the step
              // before)
    kGather,  // bucket: gather its parameters on this host, in a buffer or (after an update) in
              // place
    kForward,     // segment
    kRecompute,   // segment: its forward again, before its backward
    kRelease,     // bucket: this rank no longer reads its gathered parameters
    kClaim,       // bucket: wait until every local rank has read the former contents of its
                  // gradient memory
    kBackward,    // segment
    kPost,        // bucket: this rank's gradients are complete
    kReduce,      // bucket: ordered sum over all ranks, or sums_on_host(), to all or to its owners
    kAccumulate,  // chunk: keep or add up the reduced gradients of a micro step
    kNorm,        // global gradient norm, clip factor, non-finite check
    kUpdate,      // chunk: optimizer states and this rank's part of the parameters
    kRead,     // from disk: a chunk, its sums, or both into their buffers; or (bucket) this rank's
               // part of the parameters, into their gather buffer
    kWrite,    // chunk, or its sums: to disk
    kSend,     // live values behind a part of the model to the stage of the next part, or gradients
               // of the live values before a part to the stage of the part before
    kReceive,  // the other end of a Send
    kBackwardInput,   // segment: the gradients of its inputs
    kBackwardWeight,  // segment, later: the gradients of its parameters
    kTie,  // bucket of a tied parameter: this rank's gradients become their sum over its stages
    kExchange,    // bucket: what the plan's Exchange says, averaged over hosts in 1 bit an element
    kSelect,      // by this step's gradients, which units are important from the next update on
    kUpdateRest,  // chunk: gradients that waited become an update, which Update lands
};

// Transfers in both directions go on at once, so each direction has a lane. Between stages, values
// and the gradients that come back have lanes of their own, so that neither waits for a neighbour
// busy with the other. If parts come up the stages again (kZeroBubbleV), the way up has its own
// lanes too: both ends of a lane have the same messages in the same order under any schedule.
// Updates that lag have a lane, beside the one of a step's own updates.
enum class Lane : uint8_t {
    kCompute,
    kCommunication,
    kRead,
    kWrite,
    kSend,
    kReceive,
    kSendBack,
    kReceiveBack,
    kSendUp,
    kReceiveUp,
    kSendUpBack,
    kReceiveUpBack,
    kUpdate
};
inline constexpr int kLanes = 13;

// The tiers: private memory of the rank, the host's shared arena, the offload file, the memory of
// the rank's GPU.
enum class Tier : uint8_t { kMemory, kShared, kDisk, kDevice };
inline constexpr int kTiers = 4;

// The uses of memory, in the words of `dslaunch plan` and metrics.jsonl.
enum class BufferKind : uint8_t {
    kParameters,
    kGradients,
    kMaster,   // fp32 copies of 16-bit parameters
    kMoments,  // optimizer states
    kActivations,
    kLiveValues,
    kBuffers,  // buffers of the model
    kStaging,  // parameters gathered from other hosts
    kBatch,
    kScalars,
    kOffload  // buffers through which offloaded chunks pass
};
inline constexpr int kBufferKinds = 11;

[[nodiscard]] std::string_view op_name(Op op);
// What an instruction sends to other hosts for.
[[nodiscard]] TrafficKind traffic_kind(Op op);
[[nodiscard]] std::string_view lane_name(Lane lane);
[[nodiscard]] std::string_view tier_name(Tier tier);
[[nodiscard]] std::string_view buffer_kind_name(BufferKind kind);

struct PlanBuffer {
    std::string name;  // "gradients of bucket 3"
    BufferKind kind = BufferKind::kScalars;
    Tier tier = Tier::kMemory;
    Bytes bytes;              // held by this rank
    bool persistent = false;  // true: exists before and after the step; else created and freed in
                              // it
};

struct Instruction {
    Op op = Op::kLoad;
    Lane lane = Lane::kCompute;
    int segment = -1;
    int bucket = -1;
    int micro_step = -1;
    int buffer = -1;  // kGather, kRelease, kRead of a bucket: gather buffer, -1: in place; kUpdate,
                      // kRead, kWrite of a chunk: swap buffer
    int chunk = -1;   // index into StepPlan::chunks
    int sum_buffer = -1;  // kAccumulate, kUpdate, kRead, kWrite of a chunk: buffer of the sums that
                          // pass
    bool gradients = false;  // kSend, kReceive: true: gradients of the live values, else the values
    int part = -1;           // kSend, kReceive: part of the model before those live values
    int peer = -1;           // kSend, kReceive: the stage at the other end
    std::vector<int> reads;  // indices into StepPlan::buffers
    std::vector<int> writes;
    std::vector<int> creates;
    std::vector<int> frees;
    Bytes bytes;  // moved between ranks for kPost…kUpdate, kGather, kSend and kReceive, in memory
                  // otherwise 0
    Bytes sent;   // by this rank's host to other hosts
    int64_t flops = 0;
    std::vector<int> waits;  // instructions of other lanes that must be done first; derived
};

// What makes the steps of one job differ in their plans.
struct StepKind {
    Exchange exchange = Exchange::kExact;
    LagPlan lag = {};

    bool operator==(const StepKind&) const = default;
};

// The time in which an instruction ran, from the begin of its step, without waits for others.
struct InstructionSpan {
    Duration begin{0};
    Duration end{0};
};

struct StepPlan {
    int rank = 0;
    Exchange exchange = Exchange::kExact;
    LagPlan lag;
    std::vector<PlanBuffer> buffers;
    std::vector<Instruction> instructions;  // in program order; each lane runs its own in this
                                            // order
    // The gradient buffer of each trained bucket, if buckets share memory (stages 2, 3), and the
    // fp32 elements of each buffer, flags included. Empty: every bucket has its own.
    std::vector<int> gradient_buffer_of_bucket;
    std::vector<int64_t> gradient_buffer_numel;
    std::vector<int64_t> gather_buffer_numel;  // elements by gather buffer
    StateChunks chunks;
    // The number of swap buffers, and by turn the one that its chunk passes through. Before a step
    // each holds the chunk of its last turn, of the step before; what is not used again at once is
    // written while the step computes.
    int swap_buffers = 0;
    std::vector<int> buffer_of_turn;
    // The number of other buffers, which reduced gradients of chunks that wait for the norm hold in
    // turn (plan/step/sum_passes.h). They are empty before a step.
    int sum_buffers = 0;

    // FNV-1a over the common parts of the plans of one data-parallel group: the instructions and
    // their order.
    [[nodiscard]] uint64_t hash() const;
    [[nodiscard]] Bytes sent() const;  // by all instructions
    [[nodiscard]] std::array<Bytes, kTrafficKinds> sent_by_kind() const;
};

struct StepPlanOptions {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int64_t accumulation_steps = 1;
    int64_t recompute_groups = 0;         // 0: keep every activation
    bool clip = false;                    // kNorm must see every bucket before the first kUpdate
    bool reduce_each_micro_step = false;  // always true at stages 2 and 3
    bool fused_update = false;     // stage 0: kUpdate sums the local ranks' gradients itself: one
                                   // host, no clip, no kReduce
    int64_t optimizer_states = 2;  // fp32 values per parameter: Adam 2, SGD with momentum 1
    // The fp32 values of each of the model's parameters that stand in no chunk: states of whole
    // tensors, in memory. Empty: there are none.
    std::vector<int64_t> tensor_states = {};
    int stage = 0;                         // ZeRO stage
    std::vector<int> node_sizes = {};      // ranks of each host; empty: all on one
    int64_t parameter_bytes = 4;           // bytes of an element as segments read it
    bool master = false;                   // true: 16-bit parameters have an fp32 copy
    bool check_overflow = false;           // kNorm as with clip, for the loss scale
    const Partition* partition = nullptr;  // owners of shards. REQUIRES: given from stage 1 on
    GatherLimits gather = {};
    OffloadPlan offload = {};
    HostWire wire = {};
    // The number of neighbouring ranks that shard one copy of the states, while other groups hold
    // other copies (MiCS, arXiv:2205.00119); 0: all ranks shard one. `partition` is over them.
    // REQUIRES: it divides world_size; a group is a whole host, or its ranks are on hosts of one
    // rank each.
    int shard_group = 0;
    // True if updates take whole tensors, so that at stage 0 the local ranks share the writing
    // tensor by tensor. REQUIRES, from stage 1 on: the partition cuts no tensor.
    bool whole_tensors = false;
    // True if all that is not on disk is in the memory of a GPU that the rank alone has. REQUIRES:
    // hosts of one rank each.
    bool on_device = false;
    Exchange exchange = Exchange::kExact;  // what hosts tell each other in this step
    // REQUIRES, if it is on: `exchange` is kExact, parameters are not offloaded, nothing is packed.
    LagPlan lag = {};
    // Kept by every plan of a job that compresses. REQUIRES then: each host holds a copy.
    CompressionRoom compression = {};
    StageWork stage_work = {};  // REQUIRES: `order` has each part and micro step once forward and
                                // once backward, whole or in both halves

    [[nodiscard]] int64_t tensor_states_of(int parameter) const {
        return tensor_states.empty() ? 0 : tensor_states[static_cast<size_t>(parameter)];
    }
    [[nodiscard]] int node_count() const {
        return node_sizes.empty() ? 1 : static_cast<int>(node_sizes.size());
    }
    // The number of ranks that shard one copy, this rank among them, and the number of copies.
    [[nodiscard]] int shard_ranks() const { return shard_group > 0 ? shard_group : world_size; }
    [[nodiscard]] int shard_rank() const { return rank % shard_ranks(); }
    [[nodiscard]] int copies() const { return world_size / shard_ranks(); }
    // Returns true if the ranks that shard one copy are on several hosts.
    [[nodiscard]] bool shards_over_hosts() const {
        return node_count() > 1 && shard_ranks() > local_world_size;
    }
    // Returns true if gradients are summed in full over the ranks of a host alone.
    [[nodiscard]] bool sums_on_host() const;
    // The host of this rank, and the bridges of a host (Topology::bridge_count).
    [[nodiscard]] int node_rank() const;
    [[nodiscard]] int bridge_count() const;
    // Returns true if no update may begin before every gradient of the step has been seen. Where
    // updates lag, important units are chosen by all of them.
    [[nodiscard]] bool norm_first() const { return clip || check_overflow || lag.on; }
    // Returns true if the reduced gradients of a step are added up, or kept, beside the buckets.
    // Their sums are in the place of the states, in memory or on disk.
    [[nodiscard]] bool keeps_reduced() const {
        return (reduces_each() && accumulation_steps > 1) || (stage >= 2 && norm_first());
    }
    [[nodiscard]] ChunkFormat chunk_format() const {
        return {parameter_bytes,  master,          optimizer_states,        offload.packings,
                offload.lossless, keeps_reduced(), offload.packed_in_memory};
    }
    // Returns true if parameters, or those of a bucket, are whole only while they are gathered.
    [[nodiscard]] bool gathers() const {
        return stage == 3 && (shards_over_hosts() || offload.parameters);
    }
    [[nodiscard]] bool is_gathered(const Bucket& bucket) const {
        return gathers() && bucket.kind != BucketKind::kPersistent;
    }
    // Returns how the parameters of a gathered bucket travel in a step.
    [[nodiscard]] WirePacking gather_packing(const Bucket& bucket) const {
        if (!shards_over_hosts() || !is_gathered(bucket)) return WirePacking::kNone;
        return bucket.kind == BucketKind::kFrozen ? wire.frozen : wire.parameters;
    }
    [[nodiscard]] WirePacking reduce_packing() const {
        const bool travel = is_half(wire.gradients) ? node_count() > 1 && !sums_on_host()
                                                    : stage > 0 && shards_over_hosts();
        return travel ? wire.gradients : WirePacking::kNone;
    }
    [[nodiscard]] bool keeps_errors() const {
        return wire.error_feedback && reduce_packing() != WirePacking::kNone;
    }
    // Returns true if each host keeps what it has gathered until the step's last use.
    [[nodiscard]] bool keeps_gathered() const { return wire.host_copy && gathers(); }
    [[nodiscard]] bool reduces_each() const { return reduce_each_micro_step || stage >= 2; }
    // The gradients of a tied bucket are added up over micro steps, until its stages add up theirs.
    [[nodiscard]] bool reduces_each(const Bucket& bucket) const {
        return reduces_each() && bucket.kind != BucketKind::kTied;
    }
};

// Stage 0: parameters in the host's shared arena, gradients per rank in it, optimizer states
// private and whole. Stage 1: optimizer states and master copies only of the rank's part of the
// partition. Stage 2: gradient buckets share buffers, given back once they are reduced. Stage 3:
// only owners keep parameters, too; on one host the others read them in place, over several hosts
// they are gathered. Offloaded chunks are read before their update and written after it. Waits are
// derived and the plan is checked before it is returned.
[[nodiscard]] StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                                      const StepPlanOptions& options);

// Fills in Instruction::waits by the buffers that instructions read, write, create and free.
void derive_waits(StepPlan& plan);

}  // namespace dslaunch::plan
