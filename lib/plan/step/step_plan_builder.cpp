// The builder of the step plan of ZeRO stages 0 to 3: one walk over micro steps and segments.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "plan/layout/reused_buffers.h"
#include "plan/step/chunk_passes.h"
#include "plan/step/gather_schedule.h"
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
          buckets_of_(buckets_of_segments(model, layout)),
          gradient_buckets_of_(gradient_buckets_of_segments(model, layout, options)) {
        number_cuts();
    }

    StepPlan make() {
        check_options(options_);
        plan_.rank = options_.rank;
        plan_.exchange = options_.exchange;
        plan_.lag = options_.lag;
        choose_chunks();
        choose_buffers();
        kept_ = add_persistent_buffers(model_, layout_, options_, plan_);
        transfers_.add_places();
        chunk_passes_.add_buffers(reduce_order(model_, layout_, options_));
        buffer_of_bucket_.assign(layout_.buckets.size(), -1);
        claimed_.assign(layout_.buckets.size(), -1);
        awaited_.assign(layout_.buckets.size(), 0);
        sums_.begin_step(model_);
        begin_micro_steps();
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
        release_kept();
        for (const TiedParameter& tie : options_.stage_work.ties) sums_.add_tie(tie);
        sums_.end_step(model_);
        if (options_.on_device) move_to_device();
        derive_waits(plan_);
        const std::vector<std::string> problems = check_plan(plan_);
        DSL_CHECK(problems.empty(), "the step plan is not sound: {}", problems.front());
        return std::move(plan_);
    }

  private:
    // The tensors held of one micro step; a pipeline has several micro steps at once.
    struct MicroStep {
        std::vector<int> live;           // by cut, the buffer alive there; -1: not held
        std::vector<int> live_gradient;  // by cut, gradients of those values
        std::vector<int> activations;    // by segment, as weight_halves
        std::vector<int> weight_halves;
        std::map<int, int> sums;  // by trained slice that several segments add to
    };
    [[nodiscard]] MicroStep& micro_step(int m) { return micro_steps_[m]; }

    void move_to_device() {
        DSL_CHECK(options_.local_world_size == 1, "{} ranks share a device",
                  options_.local_world_size);
        for (PlanBuffer& buffer : plan_.buffers)
            if (buffer.tier != Tier::kDisk) buffer.tier = Tier::kDevice;
    }

    // Parts have cuts of their own at their ends. Two parts that are neighbours in the model share
    // one cut, whose values stay.
    void number_cuts() {
        int cuts = 0;
        for (const StagePart& part : parts_) {
            const bool joined = &part != &parts_.front() && stays(part.before);
            if (joined) --cuts;
            for (int s = part.segments.begin; s < part.segments.end; ++s)
                cut_before_.push_back(cuts++);
            ++cuts;
        }
        cuts_ = static_cast<size_t>(cuts);
    }
    [[nodiscard]] size_t before(int segment) const {
        return static_cast<size_t>(cut_before_[segment]);
    }
    [[nodiscard]] size_t behind(int segment) const { return before(segment) + 1; }

    void begin_micro_steps() {
        const MicroStep nothing{std::vector<int>(cuts_, -1),
                                std::vector<int>(cuts_, -1),
                                std::vector<int>(buckets_of_.size(), -1),
                                std::vector<int>(buckets_of_.size(), -1),
                                {}};
        micro_steps_.assign(static_cast<size_t>(options_.accumulation_steps), nothing);
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

    [[nodiscard]] const std::vector<int>& buckets_of(int segment) const {
        return buckets_of_[segment];
    }

    void choose_buffers() {
        if (options_.stage >= 2) {
            ReusedBuffers buffers = make_gradient_buffers(model_, layout_, gradient_buckets_of_);
            plan_.gradient_buffer_of_bucket = std::move(buffers.buffer_of_use);
            plan_.gradient_buffer_numel = std::move(buffers.numel);
        }
        gathers_.parts.resize(parts_.size());
        if (!options_.gathers()) return;
        std::vector<std::vector<int>> gathered(buckets_of_.size());
        for (size_t s = 0; s < buckets_of_.size(); ++s)
            std::ranges::copy_if(buckets_of_[s], std::back_inserter(gathered[s]),
                                 [this](int b) { return is_gathered(b); });
        gathers_ = make_step_gathers(model_, layout_, gathered, groups_, options_);
        plan_.gather_buffer_numel = gathers_.buffer_numel;
    }
    [[nodiscard]] bool is_gathered(int b) const { return options_.is_gathered(bucket(b)); }

    // Adds the reads of a segment's parameters, in place or in their gather buffers.
    void read_parameters(int segment, Instruction& instruction) const {
        for (const int b : buckets_of(segment)) {
            const auto i = static_cast<size_t>(b);
            if (!is_gathered(b)) {
                instruction.reads.push_back(kept_.parameters[i]);
                continue;
            }
            instruction.reads.push_back(kept_.staging[buffer_of_bucket_[i]]);
            instruction.reads.push_back(kept_.places[i]);
        }
    }

    [[nodiscard]] const RecomputeGroup* group_of(int segment) const {
        for (const RecomputeGroup& group : groups_)
            if (segment >= group.begin && segment < group.end) return &group;
        return nullptr;
    }

    void add_micro_step(int m) {
        begin_positions(gathers_.parts.front().forward);
        add_forwards(parts_.front(), m);
        add_backwards(parts_.front(), m, Op::kBackward);
        for (int& live : micro_step(m).live) free_if_held(live);
    }

    void add_work(const PipelineWork& work) {
        const int m = work.micro_batch;
        const StagePart& part = parts_[work.chunk];
        const PartGathers& gathers = gathers_.parts[work.chunk];
        MicroStep& held = micro_step(m);
        const size_t last_cut = behind(part.segments.end - 1);
        if (work.kind == WorkKind::kForward) {
            begin_positions(gathers.forward);
            add_forwards(part, m);
            if (is_elsewhere(part.behind))
                transfers_.send_values(part, m, std::exchange(held.live[last_cut], -1));
            return;
        }
        if (work.kind == WorkKind::kBackwardWeight) {
            begin_positions(gathers.weight);
            add_weight_halves(part, m);
            return;
        }
        begin_positions(gathers.backward);
        if (is_elsewhere(part.behind) && info(part.segments.end - 1).backward) {
            received_ = transfers_.receive_gradients(part, m);
            held.live_gradient[last_cut] = received_.buffer;
        }
        add_backwards(part, m,
                      work.kind == WorkKind::kBackward ? Op::kBackward : Op::kBackwardInput);
        if (part.gives_gradients && is_elsewhere(part.before))
            transfers_.send_gradients(
                part, m, std::exchange(held.live_gradient[before(part.segments.begin)], -1));
        free_live_values(part, m);
    }

    // Frees the live values of a part that are left. The backward of the part that made values
    // frees those that stayed for another part.
    void free_live_values(const StagePart& part, int m) {
        const bool came = stays(part.before) && part.gives_gradients;
        for (int s = part.segments.begin; s < part.segments.end; ++s)
            if (s > part.segments.begin || !came) free_if_held(micro_step(m).live[before(s)]);
        if (!stays(part.behind)) free_if_held(micro_step(m).live[behind(part.segments.end - 1)]);
    }

    void begin_positions(const GatherSchedule& gathers) {
        at_gathers_ = &gathers;
        position_ = 0;
    }

    void add_forwards(const StagePart& part, int m) {
        int& first = micro_step(m).live[before(part.segments.begin)];
        if (part.before.stage < 0) {
            first = plan_.add({fmt::format("batch of micro step {}", m), BufferKind::kBatch,
                               Tier::kMemory, model_.batch_bytes, false});
            plan_.add(Op::kLoad, Lane::kCompute, -1, m).creates = {first};
        } else if (is_elsewhere(part.before)) {
            received_ = transfers_.receive_values(part, m);
            first = received_.buffer;
        }
        for (int s = part.segments.begin; s < part.segments.end; ++s) {
            add_awaits(s);
            add_gathers(m);
            add_forward(part, s, m);
            end_position(m);
        }
    }

    // Adds the waits for a bucket's parameters from every local rank, before its first use in the
    // step.
    void add_awaits(int segment) {
        for (const int b : buckets_of(segment)) {
            char& awaited = awaited_[b];
            if (awaited != 0 || is_gathered(b) || b >= layout_.trained_buckets) continue;
            awaited = 1;
            plan_.add(Op::kAwait, Lane::kCompute, b).writes = {kept_.parameters[b]};
        }
    }

    // Adds the read of this rank's part of a bucket's parameters into its gather buffer.
    void add_bucket_read(const GatherUse& use, int m) {
        Instruction& read = plan_.add(Op::kRead, Lane::kRead, use.bucket, m);
        read.buffer = use.buffer;
        chunk_passes_.join_bucket_read(read);
        read.writes = {kept_.staging[use.buffer]};
    }

    // Adds the gathers that are due before the current compute instruction.
    void add_gathers(int m) {
        for (const GatherUse& use : at_gathers_->uses) {
            if (use.issue != position_ || is_kept(use)) continue;
            if (options_.offload.parameters) add_bucket_read(use, m);
            Instruction& gather = plan_.add(Op::kGather, Lane::kCommunication, use.bucket, m);
            gather.buffer = use.buffer;
            gather.reads = {kept_.parameters[use.bucket]};
            gather.writes = {kept_.staging[use.buffer], kept_.places[use.bucket]};
            sums_.count_gather(gather);
            if (options_.keeps_gathered()) kept_gathers_.push_back(use);
        }
        // A bucket is never held twice, so its newest gather is the one to read.
        for (const GatherUse& use : at_gathers_->uses)
            if (use.begin == position_) buffer_of_bucket_[use.bucket] = use.buffer;
    }

    // Returns true if the bucket has been gathered in this step and is kept.
    [[nodiscard]] bool is_kept(const GatherUse& use) const {
        return std::ranges::find(kept_gathers_, use.bucket, &GatherUse::bucket) !=
               kept_gathers_.end();
    }

    void add_release(const GatherUse& use, int m) {
        Instruction& release = plan_.add(Op::kRelease, Lane::kCompute, use.bucket, m);
        release.buffer = use.buffer;
        release.writes = {kept_.staging[use.buffer], kept_.places[use.bucket]};
    }

    void release_kept() {
        for (const GatherUse& use : kept_gathers_)
            add_release(use, static_cast<int>(options_.accumulation_steps) - 1);
    }

    void end_position(int m) {
        for (const GatherUse& use : at_gathers_->uses)
            if (use.end == position_ && !options_.keeps_gathered()) add_release(use, m);
        ++position_;
    }

    void add_forward(const StagePart& part, int s, int m) {
        const RecomputeGroup* group = group_of(s);
        const int live =
            plan_.add({fmt::format("live values after segment {}, micro step {}", s, m),
                       BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
        Instruction& forward = plan_.add(Op::kForward, Lane::kCompute, -1, m);
        forward.segment = s;
        forward.flops = info(s).forward_flops;
        MicroStep& held = micro_step(m);
        forward.reads = {held.live[before(s)]};
        if (s == part.segments.begin && is_elsewhere(part.before))
            forward.writes = {received_.place};
        read_parameters(s, forward);
        forward.creates = {live};
        held.live[behind(s)] = live;
        // A group keeps only its first inputs; the values inside it are made again.
        const bool inner = group != nullptr && s > group->begin;
        const bool dead = group == nullptr && !info(s).backward && s > part.segments.begin;
        if (inner || dead) take_held(held.live[before(s)], forward);
        Bytes counted = info(s).output_bytes;
        if (info(s).backward && group == nullptr) {
            const int activations = add_activations(s, m);
            plan_.instructions.back().creates.push_back(activations);
            held.activations[s] = activations;
            counted += info(s).activation_bytes;
        }
        add_momentary(info(s).forward_peak, counted);
    }

    // Adds a momentary buffer for the PEAK bytes of the last instruction's segment, less the
    // COUNTED bytes that other buffers hold.
    void add_momentary(Bytes peak, Bytes counted) {
        if (peak <= counted) return;
        Instruction& instruction = plan_.instructions.back();
        const int made = plan_.add(
            {fmt::format("momentary tensors of {} of segment {}, micro step {}",
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

    // Lets INSTRUCTION free a held buffer.
    static void take_held(int& buffer, Instruction& instruction) {
        if (buffer < 0) return;
        instruction.frees.push_back(buffer);
        buffer = -1;
    }

    // Frees a held buffer with the last compute instruction.
    void free_if_held(int& buffer) {
        if (buffer < 0) return;
        for (size_t i = plan_.instructions.size(); i-- > 0;) {
            if (plan_.instructions[i].lane != Lane::kCompute) continue;
            return take_held(buffer, plan_.instructions[i]);
        }
    }

    // Adds backwards. OP is kBackward, or kBackwardInput for the first half alone.
    void add_backwards(const StagePart& part, int m, Op op) {
        for (int s = part.segments.end; s-- > part.segments.begin;) {
            if (!info(s).backward) continue;
            const RecomputeGroup* group = group_of(s);
            if (group != nullptr && s == group->end - 1) add_recompute(*group, m);
            add_gathers(m);
            if (op == Op::kBackward) add_claims(s, m);
            add_backward(op, s, m);
            if (op == Op::kBackward) sums_.add_reductions(s, m);
            end_position(m);
        }
    }

    void add_weight_halves(const StagePart& part, int m) {
        for (int s = part.segments.end; s-- > part.segments.begin;) {
            if (!info(s).backward) continue;
            add_gathers(m);
            add_claims(s, m);
            Instruction& weights = plan_.add(Op::kBackwardWeight, Lane::kCompute, -1, m);
            weights.segment = s;
            weights.flops = info(s).forward_flops;
            read_parameters(s, weights);
            write_gradients(s, weights);
            take_held(micro_step(m).weight_halves[s], weights);
            add_separate_sums(s, m);
            sums_.add_reductions(s, m);
            end_position(m);
        }
    }

    void write_gradients(int s, Instruction& backward) {
        for (const int b : gradient_buckets_of_[s]) backward.writes.push_back(sums_.gradients(b));
    }

    void add_recompute(const RecomputeGroup& group, int m) {
        MicroStep& held = micro_step(m);
        for (int s = group.begin; s < group.end; ++s) {
            add_gathers(m);
            held.activations[s] = add_activations(s, m);
            int live = -1;
            if (s + 1 < group.end)
                live = plan_.add(
                    {fmt::format("live values after segment {}, micro step {}, again", s, m),
                     BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
            Instruction& again = plan_.add(Op::kRecompute, Lane::kCompute, -1, m);
            again.segment = s;
            again.flops = info(s).forward_flops;
            again.reads = {held.live[before(s)]};
            read_parameters(s, again);
            again.creates = {held.activations[s]};
            if (live >= 0) {
                again.creates.push_back(live);
                held.live[behind(s)] = live;
            }
            add_momentary(info(s).forward_peak,
                          info(s).activation_bytes + (live >= 0 ? info(s).output_bytes : Bytes{}));
            end_position(m);
        }
    }

    void add_claims(int segment, int m) {
        for (const int b : gradient_buckets_of_[segment]) {
            int& claimed = claimed_[b];
            const bool fresh = claimed < 0 || (options_.reduces_each(bucket(b)) && claimed != m);
            if (!fresh) continue;
            claimed = m;
            plan_.add(Op::kClaim, Lane::kCompute, b, m).writes = {sums_.gradients(b)};
        }
    }

    void add_backward(Op op, int s, int m) {
        MicroStep& held = micro_step(m);
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
                {fmt::format("what the weights of segment {} wait with, micro step {}", s, m),
                 BufferKind::kActivations, Tier::kMemory, info(s).weight_half_bytes + inputs,
                 false});
        Instruction& backward = plan_.add(op, Lane::kCompute, -1, m);
        backward.segment = s;
        backward.flops = (split ? 1 : 2) * info(s).forward_flops;
        backward.reads = {held.live[before(s)]};
        const bool from_next = last && is_elsewhere(part.behind);
        if (from_next) backward.writes = {received_.place};
        read_parameters(s, backward);
        if (split) {
            backward.creates = {half};
            held.weight_halves[s] = half;
        } else {
            write_gradients(s, backward);
        }
        take_held(held.activations[s], backward);
        take_held(held.live[behind(s)], backward);
        take_held(held.live_gradient[behind(s)], backward);
        if (upstream >= 0) {
            backward.creates.push_back(upstream);
            held.live_gradient[before(s)] = upstream;
        }
        Bytes counted = info(s).activation_bytes;
        if (!from_next) counted += info(s).output_bytes;
        if (!last || part.behind.stage >= 0) counted += info(s).output_bytes;
        if (has_upstream) counted += inputs;
        add_momentary(info(s).backward_peak, counted);
        if (!split) add_separate_sums(s, m);
    }

    // Sums the gradients of a parameter of several segments beside the bucket, from its last
    // segment to its first, if the bucket has another dtype or holds sums of other micro steps, or
    // if other parts come between.
    void add_separate_sums(int s, int m) {
        for (int i = 0; i < layout_.trained_slices; ++i) {
            const ParameterSlice& slice = layout_.slices[i];
            const ParameterInfo& parameter = model_.parameters[slice.parameter];
            if (slice.first_segment == slice.last_segment) continue;
            const bool fresh = m == 0 || options_.reduces_each(bucket(layout_.bucket_of(i)));
            if (parameter.element_bytes == 4 && fresh && !slice.over_parts) continue;
            std::map<int, int>& sums = micro_step(m).sums;
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
    StageTransfers::Received received_;         // for the current work
    std::vector<std::vector<int>> buckets_of_;  // by segment, as gradient_buckets_of_
    std::vector<std::vector<int>> gradient_buckets_of_;
    PersistentBuffers kept_;
    ReduceAndUpdate sums_{layout_, options_, kept_, plan_, chunk_passes_};
    StepGathers gathers_;
    const GatherSchedule* at_gathers_ = nullptr;
    std::vector<GatherUse> kept_gathers_;  // of this step, if hosts keep what they gather
    std::vector<int> buffer_of_bucket_;    // by bucket, its gather buffer now
    std::vector<int> cut_before_;          // by segment
    size_t cuts_ = 0;
    std::vector<MicroStep> micro_steps_;
    std::vector<char> awaited_;
    std::vector<int> claimed_;  // by bucket, the micro step of its last claim
    int position_ = 0;          // position of the compute lane in at_gathers_ (compute_positions)
};

}  // namespace

StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                        const StepPlanOptions& options) {
    return PlanBuilder(model, layout, options).make();
}

}  // namespace dslaunch::plan
