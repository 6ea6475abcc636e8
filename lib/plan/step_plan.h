// The step plan: one optimizer step of one rank as a list of instructions, known before it runs.
// Data without LibTorch: it is printed, costed, simulated, hashed and checked; runtime/executor.h
// runs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "plan/flat_layout.h"
#include "plan/model_info.h"

namespace dslaunch {

// Each names its segment, bucket and micro step where it has one.
enum class Op : uint8_t {
    kLoad,   // take the next micro batch from the data thread
    kAwait,  // wait until every local rank has written its part of a bucket's parameters (the step
             // before)
    kForward,    // segment
    kRecompute,  // segment, again, before its backward
    kClaim,  // bucket: wait until every local rank has read the gradients of the generation before
    kBackward,    // segment
    kPost,        // bucket: this rank's gradients are complete
    kReduce,      // bucket: ordered sum over all ranks
    kAccumulate,  // bucket: the reduced gradients of a micro step are added up
                  // (reduce_each_micro_step)
    kNorm,        // global gradient norm, clip factor, non-finite check
    kUpdate,      // bucket: optimizer states and this rank's part of the parameters
};

enum class Lane : uint8_t { kCompute, kCommunication };
inline constexpr int kLanes = 2;

enum class Tier : uint8_t {
    kMemory,
    kShared
};  // private memory of the rank; the host's shared arena

enum class BufferKind : uint8_t {
    kParameters,
    kGradients,
    kOptimizer,
    kActivations,
    kLiveValues,
    kBatch,
    kScalars
};

[[nodiscard]] std::string_view op_name(Op op);
[[nodiscard]] std::string_view lane_name(Lane lane);
[[nodiscard]] std::string_view tier_name(Tier tier);
[[nodiscard]] std::string_view buffer_kind_name(BufferKind kind);

struct PlanBuffer {
    std::string name;  // "gradients of bucket 3"
    BufferKind kind = BufferKind::kScalars;
    Tier tier = Tier::kMemory;
    Bytes bytes;              // held by this rank
    bool persistent = false;  // exists before and after the step; others are created and freed in
                              // it
};

struct Instruction {
    Op op = Op::kLoad;
    Lane lane = Lane::kCompute;
    int segment = -1;
    int bucket = -1;
    int micro_step = -1;
    std::vector<int> reads;  // indices into StepPlan::buffers
    std::vector<int> writes;
    std::vector<int> creates;
    std::vector<int> frees;
    Bytes bytes;  // moved: between ranks for kPost…kUpdate, in memory otherwise 0
    int64_t flops = 0;
    std::vector<int> waits;  // instructions of other lanes that must be done first; derived
};

struct StepPlan {
    int rank = 0;
    std::vector<PlanBuffer> buffers;
    std::vector<Instruction> instructions;  // in program order; each lane runs its own in this
                                            // order

    // FNV-1a over what ranks of one data-parallel group must have in common: which instructions, in
    // which order.
    [[nodiscard]] uint64_t hash() const;
};

struct StepPlanOptions {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int64_t accumulation_steps = 1;
    int64_t recompute_groups = 0;  // 0: keep every activation
    bool clip = false;             // kNorm must see every bucket before the first kUpdate
    bool reduce_each_micro_step = false;
    bool fused_update = false;     // kUpdate sums the local ranks' gradients itself: one host, no
                                   // clip, no kReduce
    int64_t optimizer_states = 2;  // fp32 values per parameter: Adam 2, SGD with momentum 1
};

// ZeRO stage 0: parameters in the host's shared arena, gradients per rank in it, optimizer states
// private and whole. Waits are derived and the plan is checked before it is returned.
[[nodiscard]] StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                                      const StepPlanOptions& options);

// Fills Instruction::waits from what the instructions read, write, create and free.
void derive_waits(StepPlan& plan);

// Segments [begin, end) that are recomputed together: GROUPS ranges of about equal activation
// bytes, in order. Segments without a backward are in none. GROUPS 0: none at all.
struct RecomputeGroup {
    int begin = 0;
    int end = 0;
};
[[nodiscard]] std::vector<RecomputeGroup> make_recompute_groups(const ModelInfo& model,
                                                                int64_t groups);

}  // namespace dslaunch
