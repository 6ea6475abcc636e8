// The builder of step plans for ZeRO stages 0 to 3: one pass over micro steps and segments.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "plan/layout/swap_buffers.h"
#include "plan/step/chunk_passes.h"
#include "plan/step/held_tensors.h"
#include "plan/step/parameter_gathers.h"
#include "plan/step/persistent_buffers.h"
#include "plan/step/plan_check.h"
#include "plan/step/recompute_groups.h"
#include "plan/step/reduce_and_update.h"
#include "plan/step/stage_transfers.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

namespace {

class PlanBuilder {
  public:
    PlanBuilder(const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options)
        : model_(model),
          layout_(layout),
          options_(options),
          parts_(parts_of(options.stage_work, model.segments.size())),
          groups_(make_recompute_groups(model, options.recompute_groups, parts_)),
          held_(parts_, options.stage_work, options.accumulation_steps) {}

    StepPlan make() {
        check_options(options_);
        plan_.rank = options_.rank;
        plan_.exchange = options_.exchange;
        plan_.lag = options_.lag;
        choose_chunks();
        sums_.choose_buffers(model_);
        parameters_.choose(model_, groups_);
        kept_ = add_persistent_buffers(model_, layout_, options_, plan_);
        transfers_.add_places();
        chunk_passes_.add_buffers(reduce_order(model_, layout_, options_));
        sums_.begin_step(model_);
        if (options_.stage_work.in_pipeline()) {
            for (const PipelineWork& work : options_.stage_work.order) {
                transfers_.begin_work();
                add_work(work);
                transfers_.end_work();
            }
        } else {
            for (int64_t m = 0; m < options_.accumulation_steps; ++m)
                add_micro_step(static_cast<int>(m));
        }
        parameters_.release_kept();
        for (const TiedParameter& tie : options_.stage_work.ties) sums_.add_tie(tie);
        sums_.end_step(model_);
        if (options_.on_device) move_to_device();
        derive_waits(plan_);
        const std::vector<std::string> problems = check_plan(plan_);
        DSL_CHECK(problems.empty(), "the step plan is not valid: {}", problems.front());
        return std::move(plan_);
    }

  private:
    void move_to_device() {
        DSL_CHECK(options_.local_world_size == 1, "{} ranks cannot share a device",
                  options_.local_world_size);
        for (PlanBuffer& buffer : plan_.buffers)
            if (buffer.tier != Tier::kDisk) buffer.tier = Tier::kDevice;
    }

    [[nodiscard]] const StagePart& part_of(int segment) const {
        return parts_[part_at(parts_, segment)];
    }
    [[nodiscard]] bool stays(const StageSide& side) const {
        return options_.stage_work.in_pipeline() && options_.stage_work.stay(side);
    }
    // Returns true if the part on SIDE belongs to another stage.
    [[nodiscard]] bool is_elsewhere(const StageSide& side) const {
        return side.stage >= 0 && !stays(side);
    }

    [[nodiscard]] const Bucket& bucket(int b) const { return layout_.buckets[b]; }
    [[nodiscard]] const SegmentInfo& info(int segment) const { return model_.segments[segment]; }

    void choose_chunks() {
        plan_.chunks = make_state_chunks(layout_, options_.partition,
                                         {options_.shard_rank(), options_.stage, options_.offload,
                                          update_order(model_, layout_, options_)});
        plan_.swap_buffers = std::min<int>(static_cast<int>(options_.offload.swap_buffers),
                                           static_cast<int>(plan_.chunks.turns.size()));
        plan_.buffer_of_turn = deal_buffers(std::ssize(plan_.chunks.turns), plan_.swap_buffers,
                                            options_.offload.eviction);
    }

    [[nodiscard]] const RecomputeGroup* group_of(int segment) const {
        for (const RecomputeGroup& group : groups_)
            if (segment >= group.begin && segment < group.end) return &group;
        return nullptr;
    }

    void add_micro_step(int m) {
        parameters_.begin_work(0, &PartGathers::forward);
        add_forwards(parts_.front(), m);
        add_backwards(parts_.front(), m, Op::kBackward);
        for (int& values : held_.values(m)) free_if_held(values);
    }

    void add_work(const PipelineWork& work) {
        const int m = work.micro_batch;
        const auto chunk = static_cast<size_t>(work.chunk);
        const StagePart& part = parts_[chunk];
        const int last = part.segments.end - 1;
        if (work.kind == WorkKind::kForward) {
            parameters_.begin_work(chunk, &PartGathers::forward);
            add_forwards(part, m);
            if (is_elsewhere(part.behind))
                transfers_.send_values(part, m, std::exchange(held_.values_after(last, m), -1));
            return;
        }
        if (work.kind == WorkKind::kBackwardWeight) {
            parameters_.begin_work(chunk, &PartGathers::weight);
            add_weight_halves(part, m);
            return;
        }
        parameters_.begin_work(chunk, &PartGathers::backward);
        if (is_elsewhere(part.behind) && info(last).backward) {
            received_ = transfers_.receive_gradients(part, m);
            held_.gradients_after(last, m) = received_.buffer;
        }
        add_backwards(part, m,
                      work.kind == WorkKind::kBackward ? Op::kBackward : Op::kBackwardInput);
        if (part.gives_gradients && is_elsewhere(part.before))
            transfers_.send_gradients(
                part, m, std::exchange(held_.gradients_before(part.segments.begin, m), -1));
        free_live_values(part, m);
    }

    // Frees the remaining live values of a part. Values between two parts of this stage are freed
    // by the backward of the part that made them.
    void free_live_values(const StagePart& part, int m) {
        const bool came = stays(part.before) && part.gives_gradients;
        for (int s = part.segments.begin; s < part.segments.end; ++s)
            if (s > part.segments.begin || !came) free_if_held(held_.values_before(s, m));
        if (!stays(part.behind)) free_if_held(held_.values_after(part.segments.end - 1, m));
    }

    void add_forwards(const StagePart& part, int m) {
        int& first = held_.values_before(part.segments.begin, m);
        if (part.before.stage < 0) {
            first = plan_.add({fmt::format("batch of micro step {}", m), BufferKind::kBatch,
                               Tier::kMemory, model_.batch_bytes, false});
            plan_.add(Op::kLoad, Lane::kCompute, -1, m).creates = {first};
        } else if (is_elsewhere(part.before)) {
            received_ = transfers_.receive_values(part, m);
            first = received_.buffer;
        }
        for (int s = part.segments.begin; s < part.segments.end; ++s) {
            parameters_.add_awaits(s);
            parameters_.add_gathers(m);
            add_forward(part, s, m);
            parameters_.end_position(m);
        }
    }

    void add_forward(const StagePart& part, int s, int m) {
        const RecomputeGroup* group = group_of(s);
        const int live =
            plan_.add({fmt::format("live values after segment {}, micro step {}", s, m),
                       BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
        Instruction& forward = plan_.add(Op::kForward, Lane::kCompute, -1, m);
        forward.segment = s;
        forward.flops = info(s).forward_flops;
        forward.reads = {held_.values_before(s, m)};
        if (s == part.segments.begin && is_elsewhere(part.before))
            forward.writes = {received_.place};
        parameters_.join(s, forward);
        forward.creates = {live};
        held_.values_after(s, m) = live;
        // A group keeps only its inputs. The values inside it are computed again.
        const bool inner = group != nullptr && s > group->begin;
        const bool dead = group == nullptr && !info(s).backward && s > part.segments.begin;
        if (inner || dead) take_held(held_.values_before(s, m), forward);
        Bytes counted = info(s).output_bytes;
        if (info(s).backward && group == nullptr) {
            const int activations = add_activations(s, m);
            plan_.instructions.back().creates.push_back(activations);
            held_.activations(s, m) = activations;
            counted += info(s).activation_bytes;
        }
        add_momentary(info(s).forward_peak, counted);
    }

    // Adds a buffer for the temporary tensors of the segment that the last instruction runs. Other
    // buffers contain COUNTED of its PEAK bytes, so this buffer has `peak - counted` bytes.
    void add_momentary(Bytes peak, Bytes counted) {
        if (peak <= counted) return;
        Instruction& instruction = plan_.instructions.back();
        const int made = plan_.add(
            {fmt::format("temporary tensors of {} of segment {}, micro step {}",
                         op_name(instruction.op), instruction.segment, instruction.micro_step),
             BufferKind::kActivations, Tier::kMemory, peak - counted, false});
        instruction.creates.push_back(made);
        instruction.frees.push_back(made);
    }

    int add_activations(int s, int m) {
        return plan_.add({fmt::format("activations of segment {}, micro step {}", s, m),
                          BufferKind::kActivations, Tier::kMemory, info(s).activation_bytes,
                          false});
    }

    // Makes INSTRUCTION free a held buffer.
    static void take_held(int& buffer, Instruction& instruction) {
        if (buffer < 0) return;
        instruction.frees.push_back(buffer);
        buffer = -1;
    }

    // Makes the last compute instruction free a held buffer.
    void free_if_held(int& buffer) {
        if (buffer < 0) return;
        for (size_t i = plan_.instructions.size(); i-- > 0;) {
            if (plan_.instructions[i].lane != Lane::kCompute) continue;
            return take_held(buffer, plan_.instructions[i]);
        }
    }

    // Adds the backwards of PART. OP is kBackward, or kBackwardInput to add only the first halves.
    void add_backwards(const StagePart& part, int m, Op op) {
        for (int s = part.segments.end; s-- > part.segments.begin;) {
            if (!info(s).backward) continue;
            const RecomputeGroup* group = group_of(s);
            if (group != nullptr && s == group->end - 1) add_recompute(*group, m);
            parameters_.add_gathers(m);
            if (op == Op::kBackward) sums_.add_claims(s, m);
            add_backward(op, s, m);
            if (op == Op::kBackward) sums_.add_reductions(s, m);
            parameters_.end_position(m);
        }
    }

    void add_weight_halves(const StagePart& part, int m) {
        for (int s = part.segments.end; s-- > part.segments.begin;) {
            if (!info(s).backward) continue;
            parameters_.add_gathers(m);
            sums_.add_claims(s, m);
            Instruction& weights = plan_.add(Op::kBackwardWeight, Lane::kCompute, -1, m);
            weights.segment = s;
            weights.flops = info(s).forward_flops;
            parameters_.join(s, weights);
            sums_.join_gradients(s, weights);
            take_held(held_.weight_half(s, m), weights);
            add_separate_sums(s, m);
            sums_.add_reductions(s, m);
            parameters_.end_position(m);
        }
    }

    void add_recompute(const RecomputeGroup& group, int m) {
        for (int s = group.begin; s < group.end; ++s) {
            parameters_.add_gathers(m);
            held_.activations(s, m) = add_activations(s, m);
            int live = -1;
            if (s + 1 < group.end)
                live = plan_.add(
                    {fmt::format("recomputed live values after segment {}, micro step {}", s, m),
                     BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
            Instruction& again = plan_.add(Op::kRecompute, Lane::kCompute, -1, m);
            again.segment = s;
            again.flops = info(s).forward_flops;
            again.reads = {held_.values_before(s, m)};
            parameters_.join(s, again);
            again.creates = {held_.activations(s, m)};
            if (live >= 0) {
                again.creates.push_back(live);
                held_.values_after(s, m) = live;
            }
            add_momentary(info(s).forward_peak,
                          info(s).activation_bytes + (live >= 0 ? info(s).output_bytes : Bytes{}));
            parameters_.end_position(m);
        }
    }

    void add_backward(Op op, int s, int m) {
        const StagePart& part = part_of(s);
        const bool first = s == part.segments.begin;
        const bool last = s + 1 == part.segments.end;
        const bool has_upstream = first ? part.gives_gradients : info(s - 1).backward;
        const Bytes inputs = first ? part.received : info(s - 1).output_bytes;
        int upstream = -1;
        if (has_upstream)
            upstream = plan_.add(
                {fmt::format("gradients of the live values before segment {}, micro step {}", s, m),
                 BufferKind::kLiveValues, Tier::kMemory, inputs, false});
        const bool split = op == Op::kBackwardInput;
        int half = -1;
        if (split)
            half = plan_.add(
                {fmt::format("values kept for the weight gradients of segment {}, micro step {}", s,
                             m),
                 BufferKind::kActivations, Tier::kMemory, info(s).weight_half_bytes + inputs,
                 false});
        Instruction& backward = plan_.add(op, Lane::kCompute, -1, m);
        backward.segment = s;
        backward.flops = (split ? 1 : 2) * info(s).forward_flops;
        backward.reads = {held_.values_before(s, m)};
        const bool from_next = last && is_elsewhere(part.behind);
        if (from_next) backward.writes = {received_.place};
        parameters_.join(s, backward);
        if (split) {
            backward.creates = {half};
            held_.weight_half(s, m) = half;
        } else {
            sums_.join_gradients(s, backward);
        }
        take_held(held_.activations(s, m), backward);
        take_held(held_.values_after(s, m), backward);
        take_held(held_.gradients_after(s, m), backward);
        if (upstream >= 0) {
            backward.creates.push_back(upstream);
            held_.gradients_before(s, m) = upstream;
        }
        Bytes counted = info(s).activation_bytes;
        if (!from_next) counted += info(s).output_bytes;
        if (!last || part.behind.stage >= 0) counted += info(s).output_bytes;
        if (has_upstream) counted += inputs;
        add_momentary(info(s).backward_peak, counted);
        if (!split) add_separate_sums(s, m);
    }

    // Adds a separate buffer for the gradients of each parameter that several segments read, if
    // they cannot be added up in the bucket. This is so if the parameter is not fp32, if the bucket
    // holds sums of other micro steps, or if other parts come between these segments. The buffer
    // exists from the backward of the parameter's last segment to the backward of its first.
    void add_separate_sums(int s, int m) {
        for (int i = 0; i < layout_.trained_slices; ++i) {
            const ParameterSlice& slice = layout_.slices[i];
            const ParameterInfo& parameter = model_.parameters[slice.parameter];
            if (slice.first_segment == slice.last_segment) continue;
            const bool fresh = m == 0 || options_.reduces_each(bucket(layout_.bucket_of(i)));
            if (parameter.element_bytes == 4 && fresh && !slice.over_parts) continue;
            std::map<int, int>& sums = held_.sums(m);
            if (s == slice.last_segment) {
                sums[i] = plan_.add(
                    {fmt::format("sum of the gradients of {}, micro step {}", parameter.name, m),
                     BufferKind::kActivations, Tier::kMemory,
                     Bytes{parameter.numel * parameter.element_bytes}, false});
                plan_.instructions.back().creates.push_back(sums[i]);
            }
            if (s == slice.first_segment) take_held(sums.at(i), plan_.instructions.back());
        }
    }

    const ModelInfo& model_;
    const FlatLayout& layout_;
    StepPlanOptions options_;
    std::vector<StagePart> parts_;
    std::vector<RecomputeGroup> groups_;
    StepPlan plan_;
    ChunkPasses chunk_passes_{plan_, options_};
    StageTransfers transfers_{model_, options_, plan_};
    StageTransfers::Received received_;  // for the current work
    PersistentBuffers kept_;
    ReduceAndUpdate sums_{model_, layout_, options_, kept_, plan_, chunk_passes_};
    ParameterGathers parameters_{layout_, options_, kept_, plan_, chunk_passes_, sums_};
    HeldTensors held_;
};

}  // namespace

StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                        const StepPlanOptions& options) {
    return PlanBuilder(model, layout, options).make();
}

}  // namespace dslaunch::plan
