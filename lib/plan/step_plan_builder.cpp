// Writes the step plan of ZeRO stages 0 to 3: one walk over micro steps and segments.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "plan/chunk_passes.h"
#include "plan/gather_schedule.h"
#include "plan/gradient_slots.h"
#include "plan/link_bytes.h"
#include "plan/persistent_buffers.h"
#include "plan/plan_check.h"
#include "plan/reduce_order.h"
#include "plan/stage_transfers.h"
#include "plan/step_plan.h"

namespace dslaunch {

namespace {

class PlanBuilder {
  public:
    PlanBuilder(const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options)
        : model_(model),
          layout_(layout),
          options_(options),
          links_(layout, options),
          segments_(static_cast<int>(model.segments.size())),
          groups_(make_recompute_groups(model, options.recompute_groups)),
          buckets_of_(buckets_of_segments(model, layout)) {}

    StepPlan make() {
        check_options(options_);
        plan_.rank = options_.rank;
        choose_chunks();
        choose_slots();
        kept_ = add_persistent_buffers(model_, layout_, options_, plan_);
        transfers_.add_places();
        chunk_passes_.add_buffers(reduce_order(model_, layout_, options_));
        sums_.assign(static_cast<size_t>(layout_.trained_slices), -1);
        slot_of_bucket_.assign(layout_.buckets.size(), -1);
        claimed_.assign(layout_.buckets.size(), -1);
        awaited_.assign(layout_.buckets.size(), 0);
        chunk_passes_.begin_turns();
        micro_steps_.resize(static_cast<size_t>(options_.accumulation_steps));
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
        for (const TiedParameter& tie : options_.stage_work.ties) add_tie(tie);
        chunk_passes_.begin_updates();
        if (options_.norm_first()) add_norm();
        if (!updates_early(options_))
            for (const int b : update_order(model_, layout_, options_)) add_updates(b);
        derive_waits(plan_);
        const std::vector<std::string> problems = check_plan(plan_);
        DSL_CHECK(problems.empty(), "the step plan is not sound: {}", problems.front());
        return std::move(plan_);
    }

  private:
    // What is held of one micro step; several are under way at once in a pipeline.
    struct MicroStep {
        std::vector<int> live;           // buffer alive before segment s, -1: not held
        std::vector<int> live_gradient;  // gradients of the values before segment s
        std::vector<int> activations;
        std::vector<int> weight_halves;
    };
    [[nodiscard]] MicroStep& micro_step(int m) { return micro_steps_[static_cast<size_t>(m)]; }
    // Whether what is behind the last segment is another stage's.
    [[nodiscard]] bool sends() const { return !options_.stage_work.last; }

    [[nodiscard]] const Bucket& bucket(int b) const {
        return layout_.buckets[static_cast<size_t>(b)];
    }
    [[nodiscard]] const SegmentInfo& info(int segment) const {
        return model_.segments[static_cast<size_t>(segment)];
    }
    [[nodiscard]] bool several_hosts() const { return options_.node_count() > 1; }
    [[nodiscard]] bool last_micro_step(int m) const { return m + 1 == options_.accumulation_steps; }
    [[nodiscard]] bool reduces(int m) const {
        return options_.reduces_each() || last_micro_step(m);
    }
    [[nodiscard]] bool is_tied(int b) const { return bucket(b).kind == BucketKind::kTied; }
    void choose_chunks() {
        plan_.chunks = make_state_chunks(layout_, options_.partition,
                                         {options_.rank, options_.stage, options_.offload,
                                          update_order(model_, layout_, options_)});
        plan_.chunk_slots = std::min<int>(static_cast<int>(options_.offload.slots),
                                          static_cast<int>(plan_.chunks.turns.size()));
    }

    int add_buffer(PlanBuffer buffer) {
        plan_.buffers.push_back(std::move(buffer));
        return static_cast<int>(plan_.buffers.size()) - 1;
    }

    Instruction& add(Op op, Lane lane, int b = -1, int m = -1) {
        plan_.instructions.push_back({});
        Instruction& made = plan_.instructions.back();
        made.op = op;
        made.lane = lane;
        made.bucket = b;
        made.micro_step = m;
        return made;
    }

    [[nodiscard]] const std::vector<int>& buckets_of(int segment) const {
        return buckets_of_[static_cast<size_t>(segment)];
    }

    void choose_slots() {
        if (options_.stage >= 2) {
            Slots slots = make_gradient_slots(model_, layout_, buckets_of_);
            plan_.gradient_slot_of_bucket = std::move(slots.slot_of_use);
            plan_.gradient_slot_numel = std::move(slots.numel);
        }
        if (!options_.gathers()) return;
        std::vector<std::vector<int>> gathered(buckets_of_.size());
        for (size_t s = 0; s < buckets_of_.size(); ++s)
            std::ranges::copy_if(buckets_of_[s], std::back_inserter(gathered[s]),
                                 [this](int b) { return is_gathered(b); });
        gathers_ = make_step_gathers(model_, layout_, gathered, groups_, options_);
        plan_.gather_slot_numel = gathers_.slot_numel;
    }
    [[nodiscard]] bool is_gathered(int b) const { return options_.is_gathered(bucket(b)); }

    [[nodiscard]] const StateChunk& chunk(int c) const {
        return plan_.chunks.all[static_cast<size_t>(c)];
    }
    // The memory that holds a bucket's gradients.
    [[nodiscard]] int gradients(int b) const {
        const auto i = static_cast<size_t>(b);
        return options_.stage < 2
                   ? kept_.gradients[i]
                   : kept_.gradient_slots[static_cast<size_t>(plan_.gradient_slot_of_bucket[i])];
    }

    // What a segment reads of its parameters: in place, or where they are gathered.
    void read_parameters(int segment, Instruction& instruction) const {
        for (const int b : buckets_of(segment)) {
            const auto i = static_cast<size_t>(b);
            if (!is_gathered(b)) {
                instruction.reads.push_back(kept_.parameters[i]);
                continue;
            }
            instruction.reads.push_back(kept_.staging[static_cast<size_t>(slot_of_bucket_[i])]);
            instruction.reads.push_back(kept_.places[i]);
        }
    }

    [[nodiscard]] const RecomputeGroup* group_of(int segment) const {
        for (const RecomputeGroup& group : groups_)
            if (segment >= group.begin && segment < group.end) return &group;
        return nullptr;
    }

    void add_micro_step(int m) {
        begin_positions(gathers_.forward);
        add_forwards(m);
        add_backwards(m, Op::kBackward);
        for (int& live : micro_step(m).live) free_if_held(live);
    }

    void add_work(const PipelineWork& work) {
        const int m = work.micro_batch;
        if (work.kind == WorkKind::kForward) {
            begin_positions(gathers_.forward);
            add_forwards(m);
            if (sends()) transfers_.send_values(m, std::exchange(micro_step(m).live.back(), -1));
            return;
        }
        if (work.kind == WorkKind::kBackwardWeight) {
            begin_positions(gathers_.weight);
            add_weight_halves(m);
            return;
        }
        begin_positions(gathers_.backward);
        if (sends() && info(segments_ - 1).backward)
            micro_step(m).live_gradient.back() = transfers_.receive_gradients(m);
        add_backwards(m, work.kind == WorkKind::kBackward ? Op::kBackward : Op::kBackwardInput);
        if (options_.stage_work.gives_gradients)
            transfers_.send_gradients(m, std::exchange(micro_step(m).live_gradient.front(), -1));
        for (int& live : micro_step(m).live) free_if_held(live);
    }

    void begin_positions(const GatherSchedule& gathers) {
        at_gathers_ = &gathers;
        position_ = 0;
    }

    void add_forwards(int m) {
        MicroStep& held = micro_step(m);
        held.live.assign(static_cast<size_t>(segments_) + 1, -1);
        held.live_gradient.assign(static_cast<size_t>(segments_) + 1, -1);
        held.activations.assign(static_cast<size_t>(segments_), -1);
        held.weight_halves.assign(static_cast<size_t>(segments_), -1);
        if (options_.stage_work.first) {
            held.live[0] = add_buffer({fmt::format("batch of micro step {}", m), BufferKind::kBatch,
                                       Tier::kMemory, model_.batch_bytes, false});
            add(Op::kLoad, Lane::kCompute, -1, m).creates = {held.live[0]};
        } else {
            held.live[0] = transfers_.receive_values(m);
        }
        for (int s = 0; s < segments_; ++s) {
            add_awaits(s);
            add_gathers(m);
            add_forward(s, m);
            end_position(m);
        }
    }

    // Before its first use in the step, a bucket's parameters must have come from every local rank.
    void add_awaits(int segment) {
        for (const int b : buckets_of(segment)) {
            char& awaited = awaited_[static_cast<size_t>(b)];
            if (awaited != 0 || is_gathered(b) || b >= layout_.trained_buckets) continue;
            awaited = 1;
            add(Op::kAwait, Lane::kCompute, b).writes = {kept_.parameters[static_cast<size_t>(b)]};
        }
    }

    // Brings this rank's part of a bucket's parameters to where they are gathered.
    void add_bucket_read(const GatherUse& use, int m) {
        Instruction& read = add(Op::kRead, Lane::kRead, use.bucket, m);
        read.slot = use.slot;
        chunk_passes_.join_bucket_read(read);
        read.writes = {kept_.staging[static_cast<size_t>(use.slot)]};
    }

    // The gathers that are due before the compute instruction at hand.
    void add_gathers(int m) {
        for (const GatherUse& use : at_gathers_->uses) {
            if (use.issue != position_) continue;
            if (options_.offload.parameters) add_bucket_read(use, m);
            Instruction& gather = add(Op::kGather, Lane::kCommunication, use.bucket, m);
            gather.slot = use.slot;
            gather.reads = {kept_.parameters[static_cast<size_t>(use.bucket)]};
            gather.writes = {kept_.staging[static_cast<size_t>(use.slot)],
                             kept_.places[static_cast<size_t>(use.bucket)]};
            count_gather(gather);
        }
        // A bucket is never held twice, so its newest gather is the one to read.
        for (const GatherUse& use : at_gathers_->uses)
            if (use.begin == position_) slot_of_bucket_[static_cast<size_t>(use.bucket)] = use.slot;
    }

    void count_gather(Instruction& gather) const {
        gather.bytes = Bytes{bucket(gather.bucket).numel * options_.parameter_bytes};
        gather.sent = links_.sent_by_gather(gather.bucket);
    }

    void end_position(int m) {
        for (const GatherUse& use : at_gathers_->uses) {
            if (use.end != position_) continue;
            Instruction& release = add(Op::kRelease, Lane::kCompute, use.bucket, m);
            release.slot = use.slot;
            release.writes = {kept_.staging[static_cast<size_t>(use.slot)],
                              kept_.places[static_cast<size_t>(use.bucket)]};
        }
        ++position_;
    }

    void add_forward(int s, int m) {
        const RecomputeGroup* group = group_of(s);
        const int live =
            add_buffer({fmt::format("live values after segment {}, micro step {}", s, m),
                        BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
        Instruction& forward = add(Op::kForward, Lane::kCompute, -1, m);
        forward.segment = s;
        forward.flops = info(s).forward_flops;
        MicroStep& held = micro_step(m);
        forward.reads = {held.live[static_cast<size_t>(s)]};
        if (s == 0 && !options_.stage_work.first) forward.writes = {transfers_.place_of_values(m)};
        read_parameters(s, forward);
        forward.creates = {live};
        held.live[static_cast<size_t>(s) + 1] = live;
        // Inside a group only its first inputs are kept; what lies between is made again.
        const bool inner = group != nullptr && s > group->begin;
        const bool dead = group == nullptr && !info(s).backward && s > 0;
        if (inner || dead) take_held(held.live[static_cast<size_t>(s)], forward);
        Bytes counted = info(s).output_bytes;
        if (info(s).backward && group == nullptr) {
            const int activations = add_activations(s, m);
            plan_.instructions.back().creates.push_back(activations);
            held.activations[static_cast<size_t>(s)] = activations;
            counted += info(s).activation_bytes;
        }
        add_momentary(info(s).forward_peak, counted);
    }

    // What the segment of the last instruction takes at most, PEAK, beyond the COUNTED bytes that
    // it finds or leaves behind.
    void add_momentary(Bytes peak, Bytes counted) {
        if (peak <= counted) return;
        Instruction& instruction = plan_.instructions.back();
        const int made = add_buffer(
            {fmt::format("momentary tensors of {} of segment {}, micro step {}",
                         op_name(instruction.op), instruction.segment, instruction.micro_step),
             BufferKind::kActivations, Tier::kMemory, peak - counted, false});
        instruction.creates.push_back(made);
        instruction.frees.push_back(made);
    }

    int add_activations(int s, int m) {
        return add_buffer({fmt::format("activations of segment {}, micro step {}", s, m),
                           BufferKind::kActivations, Tier::kMemory, info(s).activation_bytes,
                           false});
    }

    // Lets INSTRUCTION free a held buffer.
    static void take_held(int& buffer, Instruction& instruction) {
        if (buffer < 0) return;
        instruction.frees.push_back(buffer);
        buffer = -1;
    }

    // What is left at the end goes with the last compute instruction.
    void free_if_held(int& buffer) {
        if (buffer < 0) return;
        for (size_t i = plan_.instructions.size(); i-- > 0;) {
            if (plan_.instructions[i].lane != Lane::kCompute) continue;
            return take_held(buffer, plan_.instructions[i]);
        }
    }

    // OP: kBackward, or kBackwardInput, the first half alone.
    void add_backwards(int m, Op op) {
        for (int s = segments_; s-- > 0;) {
            if (!info(s).backward) continue;
            const RecomputeGroup* group = group_of(s);
            if (group != nullptr && s == group->end - 1) add_recompute(*group, m);
            add_gathers(m);
            if (op == Op::kBackward) add_claims(s, m);
            add_backward(op, s, m);
            if (op == Op::kBackward) add_reductions(s, m);
            end_position(m);
        }
    }

    void add_weight_halves(int m) {
        for (int s = segments_; s-- > 0;) {
            if (!info(s).backward) continue;
            add_gathers(m);
            add_claims(s, m);
            Instruction& weights = add(Op::kBackwardWeight, Lane::kCompute, -1, m);
            weights.segment = s;
            weights.flops = info(s).forward_flops;
            read_parameters(s, weights);
            write_gradients(s, weights);
            take_held(micro_step(m).weight_halves[static_cast<size_t>(s)], weights);
            add_separate_sums(s, m);
            add_reductions(s, m);
            end_position(m);
        }
    }

    void write_gradients(int s, Instruction& backward) {
        for (const int b : buckets_of(s))
            if (b < layout_.trained_buckets) backward.writes.push_back(gradients(b));
    }

    void add_recompute(const RecomputeGroup& group, int m) {
        MicroStep& held = micro_step(m);
        for (int s = group.begin; s < group.end; ++s) {
            add_gathers(m);
            held.activations[static_cast<size_t>(s)] = add_activations(s, m);
            int live = -1;
            if (s + 1 < group.end)
                live = add_buffer(
                    {fmt::format("live values after segment {}, micro step {}, again", s, m),
                     BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
            Instruction& again = add(Op::kRecompute, Lane::kCompute, -1, m);
            again.segment = s;
            again.flops = info(s).forward_flops;
            again.reads = {held.live[static_cast<size_t>(s)]};
            read_parameters(s, again);
            again.creates = {held.activations[static_cast<size_t>(s)]};
            if (live >= 0) {
                again.creates.push_back(live);
                held.live[static_cast<size_t>(s) + 1] = live;
            }
            add_momentary(info(s).forward_peak,
                          info(s).activation_bytes + (live >= 0 ? info(s).output_bytes : Bytes{}));
            end_position(m);
        }
    }

    void add_claims(int segment, int m) {
        for (const int b : buckets_of(segment)) {
            if (b >= layout_.trained_buckets) continue;
            int& claimed = claimed_[static_cast<size_t>(b)];
            const bool fresh = claimed < 0 || (options_.reduces_each(bucket(b)) && claimed != m);
            if (!fresh) continue;
            claimed = m;
            add(Op::kClaim, Lane::kCompute, b, m).writes = {gradients(b)};
        }
    }

    void add_backward(Op op, int s, int m) {
        MicroStep& held = micro_step(m);
        const bool has_upstream =
            s > 0 ? info(s - 1).backward : options_.stage_work.gives_gradients;
        const Bytes before = s > 0 ? info(s - 1).output_bytes : options_.stage_work.received;
        int upstream = -1;
        if (has_upstream)
            upstream = add_buffer(
                {fmt::format("gradients of the live values before segment {}, micro step {}", s, m),
                 BufferKind::kLiveValues, Tier::kMemory, before, false});
        const bool split = op == Op::kBackwardInput;
        int half = -1;
        if (split)
            half = add_buffer(
                {fmt::format("what the weights of segment {} wait with, micro step {}", s, m),
                 BufferKind::kActivations, Tier::kMemory, info(s).weight_half_bytes + before,
                 false});
        Instruction& backward = add(op, Lane::kCompute, -1, m);
        backward.segment = s;
        backward.flops = (split ? 1 : 2) * info(s).forward_flops;
        backward.reads = {held.live[static_cast<size_t>(s)]};
        const bool from_next = s + 1 == segments_ && sends();
        if (from_next) backward.writes = {transfers_.place_of_gradients(m)};
        read_parameters(s, backward);
        if (split) {
            backward.creates = {half};
            held.weight_halves[static_cast<size_t>(s)] = half;
        } else {
            write_gradients(s, backward);
        }
        take_held(held.activations[static_cast<size_t>(s)], backward);
        take_held(held.live[static_cast<size_t>(s) + 1], backward);
        take_held(held.live_gradient[static_cast<size_t>(s) + 1], backward);
        if (upstream >= 0) {
            backward.creates.push_back(upstream);
            held.live_gradient[static_cast<size_t>(s)] = upstream;
        }
        Bytes counted = info(s).activation_bytes;
        if (!from_next) counted += info(s).output_bytes;
        if (s + 1 < segments_ || sends()) counted += info(s).output_bytes;
        if (has_upstream) counted += before;
        add_momentary(info(s).backward_peak, counted);
        if (!split) add_separate_sums(s, m);
    }

    // A parameter of several segments has its gradients summed beside the bucket where that is in
    // another dtype, or has the sums of other micro steps: from its last segment to its first.
    void add_separate_sums(int s, int m) {
        for (size_t i = 0; i < sums_.size(); ++i) {
            const ParameterSlice& slice = layout_.slices[i];
            const ParameterInfo& parameter =
                model_.parameters[static_cast<size_t>(slice.parameter)];
            if (slice.first_segment == slice.last_segment) continue;
            const bool fresh =
                m == 0 || options_.reduces_each(bucket(layout_.bucket_of(static_cast<int>(i))));
            if (parameter.element_bytes == 4 && fresh) continue;
            if (s == slice.last_segment) {
                sums_[i] = add_buffer(
                    {fmt::format("sum of the gradients of {}, micro step {}", parameter.name, m),
                     BufferKind::kActivations, Tier::kMemory,
                     Bytes{parameter.numel * parameter.element_bytes}, false});
                plan_.instructions.back().creates.push_back(sums_[i]);
            }
            if (s == slice.first_segment) take_held(sums_[i], plan_.instructions.back());
        }
    }

    void add_reductions(int segment, int m) {
        if (!reduces(m)) return;
        for (int b = layout_.trained_buckets; b-- > 0;)
            if (bucket(b).ready_segment == segment && !is_tied(b)) add_reduction(b, m);
    }

    void add_reduction(int b, int m) {
        add(Op::kPost, Lane::kCompute, b, m).reads = {gradients(b)};
        if (!sums_itself(options_)) {
            Instruction& reduce = add(Op::kReduce, Lane::kCommunication, b, m);
            reduce.writes = {gradients(b)};
            reduce.bytes = options_.world_size > 1 ? Bytes{bucket(b).numel * 4} : Bytes{};
            reduce.sent = links_.sent_by_reduce(b);
        }
        if (options_.keeps_reduced()) add_accumulates(b, m);
        if (updates_early(options_)) add_updates(b);
    }

    // At the step's end: all stages of the parameter come to it then at the latest, and none waits
    // for another one while there is work.
    void add_tie(const TiedParameter& tie) {
        const int slice = layout_.slice_of(tie.parameter);
        const int b = slice < 0 ? -1 : layout_.bucket_of(slice);
        DSL_CHECK(b >= 0 && is_tied(b), "parameter {} is tied, and has no bucket of its own",
                  tie.parameter);
        const Bytes others{(std::ssize(tie.stages) - 1) *
                           (bucket(b).numel + flag_numel(bucket(b))) * 4};
        const int m = static_cast<int>(options_.accumulation_steps) - 1;
        const int received = add_buffer({fmt::format("gradients of bucket {} from other stages", b),
                                         BufferKind::kGradients, Tier::kMemory, others, false});
        Instruction& sum = add(Op::kTie, Lane::kCompute, b, m);
        sum.writes = {gradients(b)};
        sum.creates = {received};
        sum.frees = {received};
        sum.bytes = others;
        add_reduction(b, m);
    }

    void add_accumulates(int b, int m) {
        const auto i = static_cast<size_t>(b);
        for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1];
             ++c) {
            chunk_passes_.before_accumulate(c);
            Instruction& accumulate = add(Op::kAccumulate, Lane::kCommunication, b, m);
            accumulate.chunk = c;
            accumulate.reads = {gradients(b)};
            if (chunk_passes_.sums_pass(c)) {
                chunk_passes_.join_accumulate(accumulate);
            } else {
                accumulate.writes = {kept_.reduced[i]};
            }
            // Squares for the norm, while the sums are in memory.
            if (options_.norm_first() && last_micro_step(m))
                accumulate.writes.push_back(kept_.norm);
            chunk_passes_.after_accumulate(c);
        }
    }

    // The gradients that Norm and Update read.
    [[nodiscard]] int summed(int b) const {
        return options_.keeps_reduced() ? kept_.reduced[static_cast<size_t>(b)] : gradients(b);
    }

    void add_norm() {
        Instruction& norm = add(Op::kNorm, Lane::kCommunication);
        for (int b = 0; b < layout_.trained_buckets; ++b) norm.reads.push_back(summed(b));
        norm.writes = {kept_.norm};
    }

    void add_updates(int b) {
        const auto i = static_cast<size_t>(b);
        for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c)
            add_update(c);
        if (options_.stage == 0 || !several_hosts() || is_gathered(b)) return;
        Instruction& gather = add(Op::kGather, Lane::kCommunication, b);
        gather.writes = {kept_.parameters[i]};
        count_gather(gather);
    }

    void add_update(int c) {
        const int b = chunk(c).bucket;
        const auto i = static_cast<size_t>(b);
        Instruction& update = add(Op::kUpdate, Lane::kCommunication, b);
        update.chunk = c;
        update.reads = {summed(b), kept_.norm};
        update.writes = {kept_.moments[i], kept_.parameters[i]};
        if (chunk(c).last)
            update.bytes = options_.local_world_size > 1 ? Bytes{bucket(b).numel * 4} : Bytes{};
        chunk_passes_.join_update(update);
        chunk_passes_.after_update(c);
    }

    const ModelInfo& model_;
    const FlatLayout& layout_;
    StepPlanOptions options_;
    LinkBytes links_;
    int segments_;
    std::vector<RecomputeGroup> groups_;
    StepPlan plan_;
    ChunkPasses chunk_passes_{plan_, options_};
    StageTransfers transfers_{model_, options_, plan_};
    std::vector<std::vector<int>> buckets_of_;  // by segment
    PersistentBuffers kept_;
    StepGathers gathers_;
    const GatherSchedule* at_gathers_ = nullptr;
    std::vector<int> slot_of_bucket_;  // where a gathered bucket lies just now
    std::vector<MicroStep> micro_steps_;
    std::vector<int> sums_;  // of trained slices, while they are held
    std::vector<char> awaited_;
    std::vector<int> claimed_;  // micro step in which a bucket was last claimed
    int position_ = 0;          // of the compute lane in at_gathers_, as compute_positions
};

}  // namespace

StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                        const StepPlanOptions& options) {
    return PlanBuilder(model, layout, options).make();
}

}  // namespace dslaunch
