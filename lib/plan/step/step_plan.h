// The step plan: one optimizer step of one rank as a list of instructions, known before it runs. It
// is plain data without LibTorch, so that it can be printed, costed, simulated, hashed and checked.
// runtime/executor/executor.h runs it.
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

// The kinds of instructions. Each comment begins with the segment, bucket or chunk that the
// instruction is for, if it has one.
enum class Op : uint8_t {
    kLoad,     // take the next micro batch from the data thread
    kAwait,    // bucket: wait until every local rank has written its part of the parameters in the
               // previous step
    kGather,   // bucket: gather its parameters on this host, in a buffer or, after an update, in
               // place
    kForward,  // segment
    kRecompute,   // segment: run its forward again, before its backward
    kRelease,     // bucket: this rank no longer reads its gathered parameters
    kClaim,       // bucket: wait until every local rank has read the previous contents of its
                  // gradient memory
    kBackward,    // segment
    kPost,        // bucket: this rank's gradients are complete
    kReduce,      // bucket: ordered sum over all ranks, or over the host's if sums_on_host()
    kAccumulate,  // chunk: keep or add up the reduced gradients of a micro step
    kNorm,        // global gradient norm, clip factor, non-finite check
    kUpdate,      // chunk: optimizer states and this rank's part of the parameters
    kRead,        // chunk, its sums, or both: from disk into their buffers; or bucket: this rank's
                  // part of the parameters, into their gather buffer
    kWrite,       // chunk, or its sums: to disk
    kSend,     // live values after a part of the model, to the stage of the next part; or gradients
               // of the live values before a part, to the stage of the previous part
    kReceive,  // the other end of a Send
    kBackwardInput,   // segment: the gradients of its inputs
    kBackwardWeight,  // segment: the gradients of its parameters, later
    kTie,             // bucket of a tied parameter: sum its gradients over its stages
    kExchange,        // bucket: average the values of the plan's Exchange over hosts, in 1 bit each
    kSelect,          // choose the important units for later updates, by this step's gradients
    kUpdateRest,      // chunk: make an update of waiting gradients, which Update then applies
};

// The lanes of a rank. Each direction of a transfer has a lane, since both directions run at the
// same time. Between stages, live values and gradients have separate lanes, so that neither must
// wait for the other. In a V schedule (kZeroBubbleV), values also pass from later to earlier
// stages; this direction has separate lanes too. Thus both ends of a lane have the same messages in
// the same order in every schedule. Updates that lag have a separate lane beside the lane of a
// step's other updates.
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

// The tiers of memory: private memory of the rank, the host's shared arena, the offload file, the
// memory of the rank's GPU.
enum class Tier : uint8_t { kMemory, kShared, kDisk, kDevice };
inline constexpr int kTiers = 4;

// The uses of memory, named as in `dslaunch plan` and metrics.jsonl.
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

// Returns the name as `dslaunch plan` prints it, such as "BackwardInput".
[[nodiscard]] std::string_view op_name(Op op);
// Returns the purpose for which an instruction sends bytes to other hosts.
[[nodiscard]] TrafficKind traffic_kind(Op op);
// Return the names as `dslaunch plan` prints them, such as "send back", "shared", "live_values".
[[nodiscard]] std::string_view lane_name(Lane lane);
[[nodiscard]] std::string_view tier_name(Tier tier);
[[nodiscard]] std::string_view buffer_kind_name(BufferKind kind);

// Memory or disk space that instructions use as a unit.
struct PlanBuffer {
    std::string name;  // "gradients of bucket 3"
    BufferKind kind = BufferKind::kScalars;
    Tier tier = Tier::kMemory;
    Bytes bytes;              // held by this rank
    bool persistent = false;  // true: exists before and after the step; false: only in the step
};

// A unit of work on one lane. A field that its Op does not use has its default value.
struct Instruction {
    Op op = Op::kLoad;
    Lane lane = Lane::kCompute;
    int segment = -1;
    int bucket = -1;
    int micro_step = -1;
    int buffer = -1;      // kGather, kRelease, kRead of a bucket: the gather buffer, -1: in place;
                          // kUpdate, kRead, kWrite of a chunk: the swap buffer
    int chunk = -1;       // index into StepPlan::chunks
    int sum_buffer = -1;  // kAccumulate, kUpdate, kRead, kWrite of a chunk: buffer of its sums
    bool gradients = false;  // kSend, kReceive: true: gradients of live values; false: live values
    int part = -1;           // kSend, kReceive: part of the model before those live values
    int peer = -1;           // kSend, kReceive: the stage at the other end
    std::vector<int> reads;  // indices into StepPlan::buffers
    std::vector<int> writes;
    std::vector<int> creates;
    std::vector<int> frees;
    Bytes bytes;  // moved between ranks or stages, or from and to disk; otherwise 0
    Bytes sent;   // that this rank's host sends to other hosts
    int64_t flops = 0;
    std::vector<int> waits;  // instructions of other lanes that must be done first (derive_waits)
};

// The properties in which the plans of one job's steps can differ.
struct StepKind {
    Exchange exchange = Exchange::kExact;
    LagPlan lag = {};

    bool operator==(const StepKind&) const = default;
};

// The time during which an instruction ran, counted from the beginning of its step. Waits for other
// instructions are not included.
struct InstructionSpan {
    Duration begin{0};
    Duration end{0};
};

// The step of one rank. Lanes run their instructions in order, side by side.
struct StepPlan {
    int rank = 0;
    Exchange exchange = Exchange::kExact;
    LagPlan lag;
    std::vector<PlanBuffer> buffers;
    std::vector<Instruction> instructions;  // in program order; so are the instructions of each
                                            // lane
    // The gradient buffer of each trained bucket, if buckets share memory (stages 2, 3), and the
    // fp32 elements of each buffer, flags included. Both are empty if every bucket has its own
    // buffer.
    std::vector<int> gradient_buffer_of_bucket;
    std::vector<int64_t> gradient_buffer_numel;
    std::vector<int64_t> gather_buffer_numel;  // elements by gather buffer
    StateChunks chunks;
    // The number of swap buffers, and the buffer that the chunk of each turn uses. When a step
    // begins, each buffer still holds the chunk of its last turn in the previous step. This chunk
    // is written to disk while the step computes, unless the buffer's first turn uses it again.
    int swap_buffers = 0;
    std::vector<int> buffer_of_turn;
    // The number of buffers, in addition to the swap buffers, that hold sums of chunks' gradients
    // until the norm is known (plan/step/chunk_passes.h). These buffers are empty before a step.
    int sum_buffers = 0;

    // Returns the FNV-1a hash of the parts that are the same in all plans of one data-parallel
    // group: the instructions and their order.
    [[nodiscard]] uint64_t hash() const;
    [[nodiscard]] Bytes sent() const;  // bytes that all instructions send
    [[nodiscard]] std::array<Bytes, kTrafficKinds> sent_by_kind() const;

    // Adds a buffer and returns its index.
    int add(PlanBuffer buffer);
    // Adds an instruction. The reference is valid until the next instruction is added.
    Instruction& add(Op op, Lane lane, int bucket = -1, int micro_step = -1);
};

// Returns the plan. At stage 0, the parameters and each rank's gradients are in the host's shared
// arena; optimizer states are private and whole. From stage 1 on, a rank has optimizer states and
// master copies only for its part of the partition. From stage 2 on, gradient buckets share
// buffers, which become free once they are reduced. At stage 3, only the owners keep the
// parameters: the other ranks of a host read them in place, and other hosts gather them. Offloaded
// chunks are read before their update and written after it. Derives the waits and checks the plan.
[[nodiscard]] StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                                      const StepPlanOptions& options);

// Fills in Instruction::waits from the buffers that instructions read, write, create and free.
void derive_waits(StepPlan& plan);

}  // namespace dslaunch::plan
