#include "plan/step/persistent_buffers.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "plan/exchange/sign_runs.h"
#include "plan/step/link_bytes.h"

namespace dslaunch::plan {

namespace {

// The bytes that every rank keeps for a unit: one byte that tells whether the unit is important,
// and its sum of squares in fp64, by which units are chosen.
constexpr int64_t kChoiceBytesPerUnit = 1 + 8;

class Adder {
  public:
    Adder(const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options,
          StepPlan& plan)
        : model_(model), layout_(layout), options_(options), plan_(plan) {}

    void add_parameters(int b, PersistentBuffers& made) {
        const bool sharded = options_.stage == 3 && bucket(b).kind != BucketKind::kPersistent;
        const bool gathered = options_.is_gathered(bucket(b));
        const int64_t numel =
            sharded ? options_.partition->owned_numel(options_.shard_rank(), b) : bucket(b).numel;
        // A bucket is gathered again, into another buffer, only after it has been released.
        made.places.push_back(
            !gathered ? -1
                      : plan_.add({fmt::format("place of bucket {}", b), BufferKind::kScalars,
                                   Tier::kMemory, Bytes{8}, true}));
        const bool on_disk = options_.offload.parameters && gathered;
        const int64_t kept =
            std::min(plan_.chunks.numel_where(&StateChunk::parameters_in_memory, b), numel);
        const Bytes in_memory{kept * options_.parameter_bytes};
        PlanBuffer all{fmt::format("parameters of bucket {}", b), BufferKind::kParameters,
                       on_disk ? Tier::kDisk : Tier::kShared,
                       Bytes{numel * options_.parameter_bytes} - in_memory, true};
        if (kept > 0)
            plan_.add({all.name + " in memory", all.kind, Tier::kMemory, in_memory, true});
        made.parameters.push_back(plan_.add(std::move(all)));
    }

    void add_states(int b, PersistentBuffers& made) {
        const Bytes whole{bucket(b).numel * 4};
        const Bytes owned{owned_numel(b) * 4};
        if (options_.stage < 2)
            made.gradients.push_back(
                plan_.add({fmt::format("gradients of bucket {}", b), BufferKind::kGradients,
                           Tier::kShared, whole, true}));
        const Bytes on_disk{numel_on_disk(b) * 4};
        if (options_.master)
            add_tiers(fmt::format("master copy of bucket {}", b), BufferKind::kMaster,
                      owned - on_disk, on_disk);
        made.moments.push_back(
            add_tiers(fmt::format("moments of bucket {}", b), BufferKind::kMoments,
                      options_.chunk_format().moments_in_memory(owned_numel(b) - numel_on_disk(b)) +
                          Bytes{tensor_state_numel(b) * 4},
                      options_.chunk_format().moments_on_disk(numel_on_disk(b))));
        if (options_.keeps_reduced())
            made.reduced.push_back(add_tiers(fmt::format("reduced gradients of bucket {}", b),
                                             BufferKind::kGradients, owned - on_disk, on_disk));
    }

    // Adds a buffer for the gradients of unimportant units, which wait for a later update. If this
    // update runs beside a step, the buffer also has room for the updated parameters. The states of
    // important units are in memory, even if their chunks are on disk.
    void add_waiting(int b, PersistentBuffers& made) {
        const LagPlan& lag = options_.lag;
        const int64_t bytes = 4 + (lag.overlaps ? options_.parameter_bytes : 0);
        made.waiting.push_back(
            plan_.add({fmt::format("waiting gradients of bucket {}", b), BufferKind::kGradients,
                       Tier::kMemory, Bytes{owned_numel(b) * bytes}, true}));
        const int64_t states = options_.optimizer_states + (options_.master ? 1 : 0);
        const int64_t important = static_cast<int64_t>(
            static_cast<double>(important_numel(b)) * static_cast<double>(numel_on_disk(b)) /
            static_cast<double>(std::max<int64_t>(1, bucket(b).numel)));
        if (important > 0)
            plan_.add({fmt::format("important states of bucket {}", b), BufferKind::kMoments,
                       Tier::kMemory, Bytes{important * states * 4}, true});
    }

    // Adds a buffer for the values that hosts exchange. The ranks of the host share its memory, and
    // use it for one bucket at a time. Adds buffers for the compression errors of each bucket.
    void add_exchange(PersistentBuffers& made) {
        int64_t numel = 0;
        for (int b = 0; b < layout_.trained_buckets; ++b) numel = std::max(numel, bucket(b).numel);
        const PartOf part{options_.local_rank, options_.local_world_size};
        made.exchange = plan_.add({"values that hosts exchange", BufferKind::kGradients,
                                   Tier::kShared, Bytes{part_range(numel, part).numel * 4}, true});
        for (int b = 0; b < layout_.trained_buckets; ++b)
            made.errors.push_back(
                plan_.add({fmt::format("compression of bucket {}", b), BufferKind::kMoments,
                           Tier::kMemory, Bytes{(error_numel(b) + meeting_numel(b)) * 4}, true}));
    }

  private:
    // Returns the number of elements that are updated in every step: all elements of vectors, and
    // the important units of other tensors, at least one unit in each block.
    [[nodiscard]] int64_t important_numel(int b) const {
        const LagPlan& lag = options_.lag;
        int64_t important = 0;
        for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
            const ParameterSlice& slice = layout_.slices[i];
            if (model_.parameters[slice.parameter].shape.size() == 1) {
                important += slice.numel;
                continue;
            }
            for (int64_t at = 0; at < slice.numel; at += layout_.block_numel) {
                const int64_t numel = std::min(layout_.block_numel, slice.numel - at);
                const int64_t units = (numel + lag.unit_numel - 1) / lag.unit_numel;
                important +=
                    std::min(numel, important_units(units, lag.important) * lag.unit_numel);
            }
        }
        return important;
    }
    // Returns the number of compression errors that this rank keeps: one for each value that it
    // sends for its host, and one for each average that it computes for its host.
    [[nodiscard]] int64_t error_numel(int b) const {
        const int bridges = options_.bridge_count();
        if (options_.local_rank >= bridges) return 0;
        const SignRuns runs(layout_, b, options_.node_count(), bridges);
        return numel_of(runs.of_bridge(options_.local_rank)) +
               numel_of(runs.run(options_.local_rank, options_.node_rank()));
    }
    [[nodiscard]] int64_t meeting_numel(int b) const {
        return options_.compression.meeting ? owned_numel(b) : 0;
    }
    [[nodiscard]] const Bucket& bucket(int b) const { return layout_.buckets[b]; }
    // Returns the number of elements of a bucket whose optimizer states this rank keeps.
    [[nodiscard]] int64_t owned_numel(int b) const {
        return options_.stage == 0 ? bucket(b).numel
                                   : options_.partition->owned_numel(options_.shard_rank(), b);
    }
    // Returns the number of values that the optimizer keeps for whole tensors, in addition to
    // moments. Only tensors of the bucket whose states this rank keeps are counted.
    [[nodiscard]] int64_t tensor_state_numel(int b) const {
        int64_t numel = 0;
        for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
            const ParameterSlice& slice = layout_.slices[static_cast<size_t>(i)];
            if (keeps(b, slice.offset_numel - bucket(b).offset_numel))
                numel += options_.tensor_states_of(slice.parameter);
        }
        return numel;
    }
    [[nodiscard]] bool keeps(int b, int64_t element) const {
        if (options_.stage == 0) return true;
        return std::ranges::any_of(
            options_.partition->buckets[static_cast<size_t>(b)], [&](const ShardPiece& piece) {
                return piece.owner == options_.shard_rank() && piece.range.begin <= element &&
                       element < piece.range.end();
            });
    }
    // Returns the number of elements of a bucket whose optimizer states this rank has on disk.
    [[nodiscard]] int64_t numel_on_disk(int b) const {
        return std::min(plan_.chunks.numel_where(&StateChunk::states_on_disk, b), owned_numel(b));
    }
    // Adds a buffer in memory and, if ON_DISK is not 0, a buffer on disk. Returns the buffer in
    // memory.
    int add_tiers(const std::string& name, BufferKind kind, Bytes in_memory, Bytes on_disk) {
        if (on_disk.value > 0) plan_.add({name + " on disk", kind, Tier::kDisk, on_disk, true});
        return plan_.add({name, kind, Tier::kMemory, in_memory, true});
    }

    const ModelInfo& model_;
    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    StepPlan& plan_;
};

}  // namespace

PersistentBuffers add_persistent_buffers(const ModelInfo& model, const FlatLayout& layout,
                                         const StepPlanOptions& options, StepPlan& plan) {
    PersistentBuffers made;
    Adder adder(model, layout, options, plan);
    for (int b = 0; b < static_cast<int>(layout.buckets.size()); ++b) adder.add_parameters(b, made);
    for (int b = 0; b < layout.trained_buckets; ++b) adder.add_states(b, made);
    const LinkBytes links(layout, options);
    for (int b = 0; b < layout.trained_buckets; ++b)
        if (const int64_t numel = links.error_numel(b); numel > 0)
            plan.add({fmt::format("rounding errors of the gradients of bucket {}", b),
                      BufferKind::kGradients, Tier::kMemory, Bytes{numel * 4}, true});
    for (size_t k = 0; k < plan.gradient_buffer_numel.size(); ++k)
        made.gradient_buffers.push_back(
            plan.add({fmt::format("gradient buffer {}", k), BufferKind::kGradients, Tier::kShared,
                      Bytes{plan.gradient_buffer_numel[k] * 4}, true}));
    for (size_t k = 0; k < plan.gather_buffer_numel.size(); ++k)
        made.staging.push_back(
            plan.add({fmt::format("gathered parameters {}", k), BufferKind::kStaging, Tier::kShared,
                      Bytes{plan.gather_buffer_numel[k] * options.parameter_bytes}, true}));
    if (model.buffer_bytes.value > 0)
        plan.add({"buffers of the model", BufferKind::kBuffers, Tier::kMemory, model.buffer_bytes,
                  true});
    Bytes blocks;
    for (const SegmentInfo& segment : model.segments)
        blocks = std::max({blocks, segment.forward_blocks, segment.backward_blocks});
    if (blocks.value > 0)
        plan.add({"blocks for temporary tensors", BufferKind::kActivations, Tier::kMemory, blocks,
                  true});
    if (options.compression.errors) adder.add_exchange(made);
    if (options.lag.on) {
        for (int b = 0; b < layout.trained_buckets; ++b) adder.add_waiting(b, made);
        made.choice = plan.add(
            {"choice of important units", BufferKind::kScalars, Tier::kMemory,
             Bytes{layout.trained_numel / options.lag.unit_numel * kChoiceBytesPerUnit}, true});
    }
    made.norm = plan.add({"gradient norm", BufferKind::kScalars, Tier::kMemory, Bytes{8}, true});
    return made;
}

}  // namespace dslaunch::plan
