#include "plan/step_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/plan_check.h"

namespace dslaunch {

std::string_view op_name(Op op) {
    constexpr std::array<std::string_view, 11> kNames = {
        "Load", "Await",  "Forward",    "Recompute", "Claim", "Backward",
        "Post", "Reduce", "Accumulate", "Norm",      "Update"};
    return kNames[static_cast<size_t>(op)];
}

std::string_view lane_name(Lane lane) {
    constexpr std::array<std::string_view, kLanes> kNames = {"compute", "communication"};
    return kNames[static_cast<size_t>(lane)];
}

std::string_view tier_name(Tier tier) {
    return tier == Tier::kMemory ? "memory" : "shared";
}

std::string_view buffer_kind_name(BufferKind kind) {
    constexpr std::array<std::string_view, 7> kNames = {
        "parameters", "gradients", "optimizer", "activations", "live_values", "batch", "scalars"};
    return kNames[static_cast<size_t>(kind)];
}

std::vector<RecomputeGroup> make_recompute_groups(const ModelInfo& model, int64_t groups) {
    std::vector<RecomputeGroup> made;
    if (groups <= 0) return made;
    const int count = static_cast<int>(model.segments.size());
    int begin = 0;
    while (begin < count && !model.segments[static_cast<size_t>(begin)].backward) ++begin;
    int64_t left = 0;
    for (int s = begin; s < count; ++s)
        left += model.segments[static_cast<size_t>(s)].activation_bytes.value;
    for (int64_t group = 0; group < groups && begin < count; ++group) {
        const int64_t share = left / (groups - group);
        int end = begin;
        int64_t held = 0;
        // At least one segment each, and one left for every group to come.
        while (end < count && (end == begin || held < share) && count - end > groups - group - 1) {
            held += model.segments[static_cast<size_t>(end)].activation_bytes.value;
            ++end;
        }
        if (end == begin) break;
        if (group + 1 == groups) end = count;
        made.push_back({begin, end});
        left -= held;
        begin = end;
    }
    return made;
}

namespace {

class StageZeroPlan {
  public:
    StageZeroPlan(const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options)
        : model_(model),
          layout_(layout),
          options_(options),
          segments_(static_cast<int>(model.segments.size())) {}

    StepPlan make() {
        DSL_CHECK(
            !options_.fused_update ||
                (updates_early() && options_.local_world_size == options_.world_size),
            "a fused update needs one host, no clipping and no accumulation after the reduction");
        plan_.rank = options_.rank;
        groups_ = make_recompute_groups(model_, options_.recompute_groups);
        add_persistent_buffers();
        for (int64_t m = 0; m < options_.accumulation_steps; ++m)
            add_micro_step(static_cast<int>(m));
        if (options_.clip) add_norm();
        for (int b = buckets(); b-- > 0;)
            if (options_.clip || !updates_early()) add_update(b);
        derive_waits(plan_);
        const std::vector<std::string> problems = check_plan(plan_);
        DSL_CHECK(problems.empty(), "the step plan is not sound: {}", problems.front());
        return std::move(plan_);
    }

  private:
    [[nodiscard]] int buckets() const { return static_cast<int>(layout_.buckets.size()); }
    [[nodiscard]] bool last_micro_step(int m) const { return m + 1 == options_.accumulation_steps; }
    [[nodiscard]] bool reduces(int m) const {
        return options_.reduce_each_micro_step || last_micro_step(m);
    }
    [[nodiscard]] bool accumulates() const {
        return options_.reduce_each_micro_step && options_.accumulation_steps > 1;
    }
    [[nodiscard]] bool updates_early() const { return !options_.clip && !accumulates(); }

    int add_buffer(PlanBuffer buffer) {
        plan_.buffers.push_back(std::move(buffer));
        return static_cast<int>(plan_.buffers.size()) - 1;
    }

    Instruction& add(Op op, Lane lane) {
        plan_.instructions.push_back({});
        plan_.instructions.back().op = op;
        plan_.instructions.back().lane = lane;
        return plan_.instructions.back();
    }

    void add_persistent_buffers() {
        for (int b = 0; b < buckets(); ++b) {
            const Bytes fp32{layout_.buckets[static_cast<size_t>(b)].numel * 4};
            parameters_.push_back(add_buffer({fmt::format("parameters of bucket {}", b),
                                              BufferKind::kParameters, Tier::kShared, fp32, true}));
            gradients_.push_back(add_buffer({fmt::format("gradients of bucket {}", b),
                                             BufferKind::kGradients, Tier::kShared, fp32, true}));
            optimizer_.push_back(
                add_buffer({fmt::format("optimizer states of bucket {}", b), BufferKind::kOptimizer,
                            Tier::kMemory, fp32 * options_.optimizer_states, true}));
            if (accumulates())
                accumulated_.push_back(
                    add_buffer({fmt::format("accumulated gradients of bucket {}", b),
                                BufferKind::kGradients, Tier::kMemory, fp32, true}));
        }
        norm_ = add_buffer({"gradient norm", BufferKind::kScalars, Tier::kMemory, Bytes{8}, true});
    }

    // Buckets that hold parameters of SEGMENT, each once.
    [[nodiscard]] std::vector<int> buckets_of(int segment) const {
        std::vector<int> found;
        for (const int parameter : model_.segments[static_cast<size_t>(segment)].parameters) {
            const int slice = layout_.slice_of(parameter);
            if (slice < 0) continue;
            for (int b = 0; b < buckets(); ++b) {
                const Bucket& bucket = layout_.buckets[static_cast<size_t>(b)];
                const bool inside = slice >= bucket.first_slice && slice < bucket.end_slice;
                if (inside && std::find(found.begin(), found.end(), b) == found.end())
                    found.push_back(b);
            }
        }
        std::sort(found.begin(), found.end());
        return found;
    }

    void read_parameters(int segment, Instruction& instruction) const {
        for (const int b : buckets_of(segment))
            instruction.reads.push_back(parameters_[static_cast<size_t>(b)]);
    }

    [[nodiscard]] const SegmentInfo& info(int segment) const {
        return model_.segments[static_cast<size_t>(segment)];
    }

    [[nodiscard]] const RecomputeGroup* group_of(int segment) const {
        for (const RecomputeGroup& group : groups_)
            if (segment >= group.begin && segment < group.end) return &group;
        return nullptr;
    }

    void add_micro_step(int m) {
        live_.assign(static_cast<size_t>(segments_) + 1, -1);
        live_gradient_.assign(static_cast<size_t>(segments_) + 1, -1);
        activations_.assign(static_cast<size_t>(segments_), -1);
        live_[0] = add_buffer({fmt::format("batch of micro step {}", m), BufferKind::kBatch,
                               Tier::kMemory, model_.batch_bytes, false});
        Instruction& load = add(Op::kLoad, Lane::kCompute);
        load.micro_step = m;
        load.creates = {live_[0]};
        for (int s = 0; s < segments_; ++s) {
            if (m == 0) add_awaits(s);
            add_forward(s, m);
        }
        add_backwards(m);
        for (int& live : live_) free_if_held(live);
    }

    // Before its first use in the step, a bucket's parameters must have come from every local rank.
    void add_awaits(int segment) {
        awaited_.resize(static_cast<size_t>(buckets()), false);
        for (const int b : buckets_of(segment)) {
            if (awaited_[static_cast<size_t>(b)]) continue;
            awaited_[static_cast<size_t>(b)] = true;
            Instruction& await = add(Op::kAwait, Lane::kCompute);
            await.bucket = b;
            await.writes = {parameters_[static_cast<size_t>(b)]};
        }
    }

    void add_forward(int s, int m) {
        const RecomputeGroup* group = group_of(s);
        const int live =
            add_buffer({fmt::format("live values after segment {}, micro step {}", s, m),
                        BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
        Instruction& forward = add(Op::kForward, Lane::kCompute);
        forward.segment = s;
        forward.micro_step = m;
        forward.flops = info(s).forward_flops;
        forward.reads = {live_[static_cast<size_t>(s)]};
        read_parameters(s, forward);
        forward.creates = {live};
        live_[static_cast<size_t>(s) + 1] = live;
        if (info(s).backward && group == nullptr) {
            activations_[static_cast<size_t>(s)] = add_activations(s, m);
            forward.creates.push_back(activations_[static_cast<size_t>(s)]);
        }
        // Inside a group only its first inputs are kept; what lies between is made again.
        const bool inner = group != nullptr && s > group->begin;
        const bool dead = group == nullptr && !info(s).backward && s > 0;
        if (inner || dead) take_held(live_[static_cast<size_t>(s)], forward);
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

    void free_if_held(int& buffer) {
        if (buffer >= 0) take_held(buffer, plan_.instructions.back());
    }

    void add_backwards(int m) {
        for (int s = segments_; s-- > 0;) {
            if (!info(s).backward) continue;
            const RecomputeGroup* group = group_of(s);
            if (group != nullptr && s == group->end - 1) add_recompute(*group, m);
            add_claims(s, m);
            add_backward(s, m);
            add_reductions(s, m);
        }
    }

    void add_recompute(const RecomputeGroup& group, int m) {
        for (int s = group.begin; s < group.end; ++s) {
            activations_[static_cast<size_t>(s)] = add_activations(s, m);
            int live = -1;
            if (s + 1 < group.end)
                live = add_buffer(
                    {fmt::format("live values after segment {}, micro step {}, again", s, m),
                     BufferKind::kLiveValues, Tier::kMemory, info(s).output_bytes, false});
            Instruction& again = add(Op::kRecompute, Lane::kCompute);
            again.segment = s;
            again.micro_step = m;
            again.flops = info(s).forward_flops;
            again.reads = {live_[static_cast<size_t>(s)]};
            read_parameters(s, again);
            again.creates = {activations_[static_cast<size_t>(s)]};
            if (live >= 0) {
                again.creates.push_back(live);
                live_[static_cast<size_t>(s) + 1] = live;
            }
        }
    }

    void add_claims(int segment, int m) {
        claimed_.resize(static_cast<size_t>(buckets()), -1);
        for (const int b : buckets_of(segment)) {
            int& claimed = claimed_[static_cast<size_t>(b)];
            const bool fresh = claimed < 0 || (options_.reduce_each_micro_step && claimed != m);
            if (!fresh) continue;
            claimed = m;
            Instruction& claim = add(Op::kClaim, Lane::kCompute);
            claim.bucket = b;
            claim.micro_step = m;
            claim.writes = {gradients_[static_cast<size_t>(b)]};
        }
    }

    void add_backward(int s, int m) {
        const bool has_upstream = s > 0 && info(s - 1).backward;
        int upstream = -1;
        if (has_upstream)
            upstream = add_buffer(
                {fmt::format("gradients of the live values before segment {}, micro step {}", s, m),
                 BufferKind::kLiveValues, Tier::kMemory, info(s - 1).output_bytes, false});
        Instruction& backward = add(Op::kBackward, Lane::kCompute);
        backward.segment = s;
        backward.micro_step = m;
        backward.flops = 2 * info(s).forward_flops;
        backward.reads = {live_[static_cast<size_t>(s)]};
        read_parameters(s, backward);
        for (const int b : buckets_of(s))
            backward.writes.push_back(gradients_[static_cast<size_t>(b)]);
        take_held(activations_[static_cast<size_t>(s)], backward);
        take_held(live_[static_cast<size_t>(s) + 1], backward);
        take_held(live_gradient_[static_cast<size_t>(s) + 1], backward);
        if (upstream >= 0) {
            backward.creates = {upstream};
            live_gradient_[static_cast<size_t>(s)] = upstream;
        }
    }

    void add_reductions(int segment, int m) {
        if (!reduces(m)) return;
        for (int b = buckets(); b-- > 0;) {
            const Bucket& bucket = layout_.buckets[static_cast<size_t>(b)];
            if (bucket.ready_segment != segment) continue;
            const int gradients = gradients_[static_cast<size_t>(b)];
            Instruction& post = add(Op::kPost, Lane::kCompute);
            post.bucket = b;
            post.micro_step = m;
            post.reads = {gradients};
            if (!options_.fused_update) {
                Instruction& reduce = add(Op::kReduce, Lane::kCommunication);
                reduce.bucket = b;
                reduce.micro_step = m;
                reduce.writes = {gradients};
                reduce.bytes = options_.world_size > 1 ? Bytes{bucket.numel * 4} : Bytes{};
            }
            if (accumulates()) {
                Instruction& accumulate = add(Op::kAccumulate, Lane::kCommunication);
                accumulate.bucket = b;
                accumulate.micro_step = m;
                accumulate.reads = {gradients};
                accumulate.writes = {accumulated_[static_cast<size_t>(b)]};
            }
            if (updates_early()) add_update(b);
        }
    }

    void add_norm() {
        Instruction& norm = add(Op::kNorm, Lane::kCommunication);
        norm.reads = accumulates() ? accumulated_ : gradients_;
        norm.writes = {norm_};
    }

    void add_update(int b) {
        const auto i = static_cast<size_t>(b);
        Instruction& update = add(Op::kUpdate, Lane::kCommunication);
        update.bucket = b;
        update.reads = {accumulates() ? accumulated_[i] : gradients_[i], norm_};
        update.writes = {optimizer_[i], parameters_[i]};
        update.bytes =
            options_.local_world_size > 1 ? Bytes{layout_.buckets[i].numel * 4} : Bytes{};
    }

    const ModelInfo& model_;
    const FlatLayout& layout_;
    StepPlanOptions options_;
    int segments_;
    StepPlan plan_;
    std::vector<RecomputeGroup> groups_;
    std::vector<int> parameters_;  // buffer of each bucket
    std::vector<int> gradients_;
    std::vector<int> optimizer_;
    std::vector<int> accumulated_;
    int norm_ = -1;
    std::vector<int> live_;  // buffer alive before segment s in this micro step, -1: not held
    std::vector<int> live_gradient_;  // gradients of the values before segment s
    std::vector<int> activations_;
    std::vector<char> awaited_;
    std::vector<int> claimed_;  // micro step in which a bucket was last claimed
};

}  // namespace

StepPlan make_step_plan(const ModelInfo& model, const FlatLayout& layout,
                        const StepPlanOptions& options) {
    return StageZeroPlan(model, layout, options).make();
}

void derive_waits(StepPlan& plan) {
    struct Last {
        int writer = -1;
        std::vector<int> readers;  // since the last write
    };
    std::vector<Last> last(plan.buffers.size());
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        Instruction& instruction = plan.instructions[i];
        std::array<int, kLanes> newest;
        newest.fill(-1);
        const auto wait_for = [&](int other) {
            if (other < 0) return;
            int& slot =
                newest[static_cast<size_t>(plan.instructions[static_cast<size_t>(other)].lane)];
            slot = std::max(slot, other);
        };
        for (const int b : instruction.reads) {
            wait_for(last[static_cast<size_t>(b)].writer);
            last[static_cast<size_t>(b)].readers.push_back(static_cast<int>(i));
        }
        for (const std::vector<int>* changed :
             {&instruction.writes, &instruction.creates, &instruction.frees}) {
            for (const int b : *changed) {
                Last& history = last[static_cast<size_t>(b)];
                wait_for(history.writer);
                for (const int reader : history.readers)
                    if (reader != static_cast<int>(i)) wait_for(reader);
                history.writer = static_cast<int>(i);
                history.readers.clear();
            }
        }
        instruction.waits.clear();
        for (int lane = 0; lane < kLanes; ++lane)
            if (lane != static_cast<int>(instruction.lane) &&
                newest[static_cast<size_t>(lane)] >= 0)
                instruction.waits.push_back(newest[static_cast<size_t>(lane)]);
    }
}

uint64_t StepPlan::hash() const {
    uint64_t hash = 0xCBF29CE484222325ULL;
    const auto add = [&hash](int64_t value) {
        for (int byte = 0; byte < 8; ++byte) {
            hash ^= static_cast<uint64_t>(value >> (8 * byte)) & 0xFF;
            hash *= 0x100000001B3ULL;
        }
    };
    for (const Instruction& instruction : instructions) {
        add(static_cast<int64_t>(instruction.op));
        add(static_cast<int64_t>(instruction.lane));
        add(instruction.segment);
        add(instruction.bucket);
        add(instruction.micro_step);
        // An update moves bytes inside its host, where a host of one rank moves none; ranks of a
        // host compare the layout of their arena.
        if (instruction.op != Op::kUpdate) add(instruction.bytes.value);
    }
    return hash;
}

}  // namespace dslaunch
