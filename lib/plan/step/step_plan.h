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
#include "plan/layout/state_chunks.h"
#include "plan/model/model_info.h"
#include "plan/step/lagging.h"
#include "plan/step/step_options.h"

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
    kSend,     // live values after a part of the model to the stage of the next part, or gradients
               // of the live values before a part to the stage of the part before
    kReceive,  // the other end of a Send
    kBackwardInput,   // segment: the gradients of its inputs
    kBackwardWeight,  // segment, later: the gradients of its parameters
    kTie,  // bucket of a tied parameter: this rank's gradients become their sum over its stages
    kExchange,    // bucket: the values of the plan's Exchange, averaged over hosts in 1 bit each
    kSelect,      // by this step's gradients, which units are important from the next update on
    kUpdateRest,  // chunk: gradients that waited become an update, which Update lands
};

// Transfers in both directions go on at once, so each direction has a lane. Between stages, values
// and the gradients that come back have lanes of their own, so that neither waits for a neighbour
// busy with the other. If parts come up the stages again (kZeroBubbleV), the way up has its own
// lanes too: both ends of a lane have the same messages in the same order under any schedule.
// Updates that lag have a lane beside the lane of a step's own updates.
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
// Returns the purpose for which an instruction sends to other hosts.
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

// The facts by which the plans of one job's steps differ.
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
    // The number of swap buffers, and by turn the one through which its chunk passes. Before a step
    // each holds the chunk of its last turn, of the step before; a chunk that is not used again at
    // once is written while the step computes.
    int swap_buffers = 0;
    std::vector<int> buffer_of_turn;
    // The number of other buffers, which hold in turn reduced gradients of chunks that wait for the
    // norm (plan/step/chunk_passes.h). They are empty before a step.
    int sum_buffers = 0;

    // Returns FNV-1a over the common parts of the plans of one data-parallel group: the
    // instructions and their order.
    [[nodiscard]] uint64_t hash() const;
    [[nodiscard]] Bytes sent() const;  // by all instructions
    [[nodiscard]] std::array<Bytes, kTrafficKinds> sent_by_kind() const;

    // Adds a buffer and returns its index.
    int add(PlanBuffer buffer);
    // Adds an instruction. The reference holds until the next one is added.
    Instruction& add(Op op, Lane lane, int bucket = -1, int micro_step = -1);
};

// Returns the plan. Stage 0: parameters in the host's shared arena, gradients per rank in it,
// optimizer states private and whole. Stage 1: optimizer states and master copies only of the
// rank's part of the partition. Stage 2: gradient buckets share buffers, given back once they are
// reduced. Stage 3: also only owners keep parameters; on one host the others read them in place,
// over several hosts they are gathered. Offloaded chunks are read before their update and written
// after it. Waits are derived and the plan is checked before it is returned.
[[nodiscard]] StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                                      const StepPlanOptions& options);

// Fills in Instruction::waits by the buffers that instructions read, write, create and free.
void derive_waits(StepPlan& plan);

}  // namespace dslaunch::plan
