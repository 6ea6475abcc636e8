#include "plan/choose/mesh_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "plan/choose/schedule_choice.h"

namespace dslaunch::plan {
namespace {

constexpr int kAllToAlls = 4;  // per segment with attention: queries, keys, values, outputs

size_t at(MeshAxis axis) {
    return static_cast<size_t>(axis);
}

Bytes part_of_bytes(Bytes bytes, double share) {
    return Bytes{std::llround(static_cast<double>(bytes.value) * share)};
}

// Returns the share of a segment's work that falls to one rank if the tensor axis and the sequence
// axis divide the work.
double share_of_segment(const ModelInfo& model, const SegmentInfo& segment, const MeshSizes& sizes,
                        const TensorCosts* costs) {
    double share = 1.0 / sizes.sequence;
    if (costs == nullptr || sizes.tensor == 1) return share;
    double split = 0;
    double all = 0;
    for (const int parameter : segment.parameters) {
        const auto numel = static_cast<double>(model.parameters[parameter].numel);
        all += numel;
        if (costs->split[parameter]) split += numel;
    }
    const double fraction = all > 0 ? split / all : 0;
    return share * (fraction / sizes.tensor + 1 - fraction);
}

class MeshCoster {
  public:
    MeshCoster(const MeshRequest& request, const MeshChoice& choice)
        : request_(request),
          choice_(choice),
          rates_(request.rates),
          costs_(request.tensor ? &*request.tensor : nullptr),
          mesh_(Mesh::make(choice.sizes, request.node_sizes)),
          model_(model_of_rank(request.model, choice.sizes, costs_)),
          layout_(make_flat_layout(model_, layout_options())) {
        DSL_CHECK(choice.sizes.tensor == 1 || costs_ != nullptr,
                  "the costs of the tensor axis are missing");
        for (size_t s = 0; s < model_.segments.size(); ++s)
            shares_.push_back(
                share_of_segment(request.model, request.model.segments[s], choice.sizes, costs_));
        group_by_data();
    }

    MeshCost run() {
        choose_parts();
        count_traffic();
        count_memory();
        add_times();
        return std::move(cost_);
    }

  private:
    // The sizes of a stage's part on one rank of the tensor axis.
    struct StageWeight {
        Bytes parameters;
        Bytes gradients;  // fp32
        Bytes states;     // fp32, with master copies
        int64_t trained_numel = 0;
        Bytes largest_gradients;  // gradients of the largest bucket
        Bytes largest_parameters;
        Bytes persistent;  // parameters that stage 3 keeps whole
    };

    [[nodiscard]] FlatLayoutOptions layout_options() const {
        FlatLayoutOptions options = request_.layout;
        if (choice_.zero_stage < 3) options.persistent_numel_max = 0;
        return options;
    }
    [[nodiscard]] int stages() const { return choice_.sizes.pipeline; }
    [[nodiscard]] int data() const { return choice_.sizes.data; }
    [[nodiscard]] PipelineShape shape() const {
        return {stages(), choice_.chunks, choice_.micro_batches};
    }
    [[nodiscard]] SegmentRange range_of(int part) const { return cost_.parts[part]; }
    [[nodiscard]] int stage_of_part(int part) const {
        return place_of_part(choice_.schedule, shape(), part).stage;
    }
    [[nodiscard]] GroupShape shape_of(const std::vector<int>& ranks) const {
        std::set<int> hosts;
        for (const int rank : ranks) hosts.insert(mesh_.node_of(rank));
        return {static_cast<int>(ranks.size()), static_cast<int>(hosts.size())};
    }
    // Returns one shape that stands for all GROUPS. Its number of hosts is the largest number that
    // a group spans, and `crossing` is the largest number of groups that use the link of one host.
    template <typename Groups>
    [[nodiscard]] GroupShape widest_of(const Groups& groups, int ranks) const {
        GroupShape most{ranks, 1, 1};
        std::map<int, int> crossing;
        for (const std::vector<int>& group : groups) {
            std::set<int> hosts;
            for (const int rank : group) hosts.insert(mesh_.node_of(rank));
            most.hosts = std::max(most.hosts, static_cast<int>(hosts.size()));
            if (hosts.size() > 1)
                for (const int host : hosts)
                    most.crossing = std::max(most.crossing, ++crossing[host]);
        }
        return most;
    }
    [[nodiscard]] GroupShape widest(MeshAxis axis) const {
        return widest_of(mesh_.groups(axis), mesh_.size(axis));
    }

    void group_by_data() {
        for (int rank = 0; rank < mesh_.world_size(); ++rank) {
            const MeshIndex index = mesh_.index_of(rank);
            data_groups_[{index[at(MeshAxis::kPipeline)], index[at(MeshAxis::kTensor)],
                          index[at(MeshAxis::kSequence)]}]
                .push_back(rank);
        }
        std::vector<std::vector<int>> groups;
        for (const auto& [place, ranks] : data_groups_) groups.push_back(ranks);
        data_shape_ = widest_of(groups, data());
    }

    [[nodiscard]] std::vector<SegmentTimes> times_of_rank() const {
        std::vector<SegmentTimes> times;
        for (size_t s = 0; s < shares_.size(); ++s) {
            SegmentTimes of = request_.times[s];
            of.forward_s *= shares_[s];
            of.backward_input_s *= shares_[s];
            of.backward_weight_s *= shares_[s];
            times.push_back(of);
        }
        add_collectives(times);
        return times;
    }

    // Adds the time of the collectives of tensor and sequence ranks. They run in the middle of a
    // segment, so no computation hides them.
    void add_collectives(std::vector<SegmentTimes>& times) const {
        const auto flops = static_cast<double>(std::max<int64_t>(1, whole_flops()));
        const GroupShape tensor = widest(MeshAxis::kTensor);
        const GroupShape sequence = widest(MeshAxis::kSequence);
        for (size_t s = 0; s < times.size(); ++s) {
            const SegmentInfo& segment = request_.model.segments[s];
            const double part = static_cast<double>(segment.forward_flops) / flops;
            if (costs_ != nullptr && tensor.ranks > 1) {
                times[s].forward_s +=
                    rates_.sum_s(part * static_cast<double>(costs_->forward.value), 2, tensor);
                times[s].backward_input_s +=
                    rates_.sum_s(part * static_cast<double>(costs_->backward.value), 2, tensor);
            }
            if (sequence.ranks == 1 || segment.forward_flops == 0) continue;
            const double told = kAllToAlls * static_cast<double>(segment.output_bytes.value) /
                                sequence.ranks / sequence.ranks;
            const double told_s = rates_.exchange_s(told, sequence);
            times[s].forward_s += told_s;
            if (segment.backward) times[s].backward_input_s += told_s;
        }
    }
    [[nodiscard]] int64_t whole_flops() const { return request_.model.forward_flops(); }

    void choose_parts() {
        StepPlanOptions options = request_.options;
        options.stage = choice_.zero_stage;
        options.world_size = data();
        options.recompute_groups = choice_.recompute ? std::ssize(model_.segments) : 0;
        StageRequest request = make_stage_request(model_, options, times_of_rank());
        request.schedule = choice_.schedule;
        request.shape = shape();
        request.memory_max = request_.rank_memory_max;
        const GroupShape pipeline = widest(MeshAxis::kPipeline);
        request.link_bytes_per_s = pipeline.hosts > 1 ? rates_.link_bytes_per_s / pipeline.crossing
                                                      : rates_.host_bytes_per_s;
        if (const std::string why = why_no_schedule(choice_.schedule, shape()); !why.empty())
            fail(ExitCode::kConfig, "{}", why);
        StageChoice choice = choose_stages(request);
        cost_.parts = std::move(choice.parts);
        weigh_parts();
        hide_sums(choice.costs);
        const PipelineSchedule schedule = schedule_for(choice_.schedule, shape(), choice.costs);
        cost_.run = simulate_pipeline(schedule, choice.costs);
        costs_of_parts_ = std::move(choice.costs);
    }

    void weigh_parts() {
        weights_.assign(static_cast<size_t>(stages()), {});
        std::vector<std::set<int>> parameters(weights_.size());
        for (int part = 0; part < shape().parts(); ++part) {
            const auto stage = static_cast<size_t>(stage_of_part(part));
            for (int s = range_of(part).begin; s < range_of(part).end; ++s)
                parameters[stage].insert(model_.segments[s].parameters.begin(),
                                         model_.segments[s].parameters.end());
        }
        const int64_t values =
            request_.options.optimizer_states + (request_.options.master ? 1 : 0);
        for (size_t stage = 0; stage < weights_.size(); ++stage)
            for (const int p : parameters[stage]) {
                const ParameterInfo& info = model_.parameters[p];
                weights_[stage].parameters += Bytes{info.numel * info.element_bytes};
                if (!info.trainable) continue;
                weights_[stage].trained_numel += info.numel;
                weights_[stage].gradients += Bytes{info.numel * kFp32Bytes};
                weights_[stage].states += Bytes{
                    (info.numel * values + request_.options.tensor_states_of(p)) * kFp32Bytes};
            }
        for (size_t stage = 0; stage < weights_.size(); ++stage)
            weigh_buckets(parameters[stage], weights_[stage]);
    }

    // Finds the sizes of a stage's largest bucket; a bucket is reduced and gathered as a unit. The
    // layout is for the whole model: if a bucket has parameters of two stages, each stage counts
    // its part as a separate bucket.
    void weigh_buckets(const std::set<int>& parameters, StageWeight& weight) const {
        std::map<int, Bytes> gradients, gathered;
        for (const int p : parameters) {
            const int slice = layout_.slice_of(p);
            if (slice < 0) continue;
            const ParameterInfo& info = model_.parameters[p];
            const int bucket = layout_.bucket_of(slice);
            const Bytes own{info.numel * info.element_bytes};
            if (info.trainable) gradients[bucket] += Bytes{info.numel * kFp32Bytes};
            if (layout_.buckets[bucket].kind == BucketKind::kPersistent) {
                weight.persistent += own;
            } else {
                gathered[bucket] += own;
            }
        }
        for (const auto& [bucket, bytes] : gradients)
            weight.largest_gradients = std::max(weight.largest_gradients, bytes);
        for (const auto& [bucket, bytes] : gathered)
            weight.largest_parameters = std::max(weight.largest_parameters, bytes);
    }

    // Adds the part of the communication time that no computation hides. At ZeRO stages 2 and 3,
    // gradients are summed after every backward; at stage 3 over several hosts, forwards and
    // backwards also wait for parameters.
    void hide_sums(std::vector<PartCost>& costs) const {
        if (choice_.zero_stage < 2 || data() == 1) return;
        for (size_t part = 0; part < costs.size(); ++part) {
            const auto stage = static_cast<size_t>(stage_of_part(static_cast<int>(part)));
            const double chunks = choice_.chunks;
            PartCost& cost = costs[part];
            double told_s = gradients_s(weights_[stage]) / chunks;
            if (choice_.zero_stage == 3 && data_shape_.hosts > 1) {
                const double gather_s = gathers_s(weights_[stage]) / chunks;
                cost.forward_s = std::max(cost.forward_s, gather_s);
                told_s += gather_s;
            }
            cost.backward_weight_s += std::max(0.0, told_s - backward_s(cost));
        }
    }

    [[nodiscard]] double gradients_s(const StageWeight& weight) const {
        return rates_.sum_s(static_cast<double>(weight.gradients.value),
                            choice_.zero_stage == 0 ? 2 : 1, data_shape_);
    }
    // Returns the time to gather the parameters of other hosts. A rank reads its own host's
    // parameters in place.
    [[nodiscard]] double gathers_s(const StageWeight& weight) const {
        return rates_.between_s(static_cast<double>(weight.parameters.value), data_shape_);
    }

    void add_sum(MeshAxis axis, const GroupShape& group, double bytes, double passes) {
        AxisTraffic& traffic = cost_.traffic[at(axis)];
        // Each host first adds up the values of its own ranks.
        traffic.inside += Bytes{static_cast<int64_t>(passes * bytes * (group.ranks - group.hosts))};
        traffic.between += Bytes{static_cast<int64_t>(passes * bytes * (group.hosts - 1))};
    }

    void count_traffic() {
        count_pipeline();
        const double micro_batches = choice_.micro_batches;
        const auto flops = static_cast<double>(std::max<int64_t>(1, whole_flops()));
        for (int part = 0; part < shape().parts(); ++part) {
            double part_flops = 0;
            double outputs = 0;
            for (int s = range_of(part).begin; s < range_of(part).end; ++s) {
                const SegmentInfo& segment = request_.model.segments[s];
                part_flops += static_cast<double>(segment.forward_flops);
                if (segment.forward_flops > 0)
                    outputs += (segment.backward ? 2 : 1) *
                               static_cast<double>(segment.output_bytes.value);
            }
            const int stage = stage_of_part(part);
            if (costs_ != nullptr && choice_.sizes.tensor > 1)
                for (const GroupShape& group : groups_of(MeshAxis::kTensor, stage))
                    add_sum(MeshAxis::kTensor, group,
                            micro_batches * part_flops / flops *
                                static_cast<double>((costs_->forward + costs_->backward).value) /
                                choice_.sizes.sequence,
                            2);
            if (choice_.sizes.sequence > 1)
                for (const std::vector<int>& ranks : ranks_of(MeshAxis::kSequence, stage))
                    count_all_to_alls(ranks, micro_batches * outputs);
        }
        count_data();
    }

    [[nodiscard]] std::vector<std::vector<int>> ranks_of(MeshAxis axis, int stage) const {
        std::vector<std::vector<int>> found;
        for (std::vector<int>& ranks : mesh_.groups(axis))
            if (mesh_.index_of(ranks.front())[at(MeshAxis::kPipeline)] == stage)
                found.push_back(std::move(ranks));
        return found;
    }
    [[nodiscard]] std::vector<GroupShape> groups_of(MeshAxis axis, int stage) const {
        std::vector<GroupShape> shapes;
        for (const std::vector<int>& ranks : ranks_of(axis, stage))
            shapes.push_back(shape_of(ranks));
        return shapes;
    }

    void count_all_to_alls(const std::vector<int>& ranks, double outputs) {
        const auto size = static_cast<double>(ranks.size());
        for (const int to : ranks)
            for (const int from : ranks) {
                if (to == from) continue;
                AxisTraffic& traffic = cost_.traffic[at(MeshAxis::kSequence)];
                const bool same = mesh_.node_of(to) == mesh_.node_of(from);
                (same ? traffic.inside : traffic.between) +=
                    Bytes{static_cast<int64_t>(kAllToAlls * outputs / size / size)};
            }
    }

    // Counts the outputs that each part sends to the rank of the next part, and the returning
    // gradients.
    void count_pipeline() {
        AxisTraffic& traffic = cost_.traffic[at(MeshAxis::kPipeline)];
        for (int part = 0; part + 1 < shape().parts(); ++part) {
            const SegmentInfo& last = model_.segments[range_of(part).end - 1];
            const Bytes told =
                last.output_bytes * ((last.backward ? 2 : 1) * int64_t{choice_.micro_batches});
            const int from = stage_of_part(part);
            const int to = stage_of_part(part + 1);
            if (from == to) continue;
            for (const std::vector<int>& ranks : mesh_.groups(MeshAxis::kPipeline)) {
                const bool same = mesh_.node_of(ranks[from]) == mesh_.node_of(ranks[to]);
                (same ? traffic.inside : traffic.between) += told;
            }
        }
    }

    void count_data() {
        const double times = choice_.zero_stage >= 2 ? choice_.micro_batches : 1;
        for (const auto& [place, ranks] : data_groups_) {
            const StageWeight& weight = weights_[place[0]];
            const GroupShape group = shape_of(ranks);
            const MeshAxis axis = MeshAxis::kShard;
            add_sum(axis, group, times * static_cast<double>(weight.gradients.value),
                    choice_.zero_stage == 0 ? 2 : 1);
            // A rank reads its own host's parameters in the arena (memory that the host's ranks
            // share), so only other hosts' parameters are fetched.
            double gathers = choice_.zero_stage == 0 ? 0 : 1;
            if (choice_.zero_stage == 3) gathers = 2 * choice_.micro_batches;
            cost_.traffic[at(axis)].between += Bytes{static_cast<int64_t>(
                gathers * static_cast<double>(weight.parameters.value) * (group.hosts - 1))};
        }
        if (choice_.sizes.sequence == 1) return;
        for (int stage = 0; stage < stages(); ++stage)
            for (const GroupShape& group : groups_of(MeshAxis::kSequence, stage))
                add_sum(MeshAxis::kSequence, group,
                        static_cast<double>(weights_[stage].gradients.value), 2);
    }

    void count_memory() {
        for (int stage = 0; stage < stages(); ++stage)
            cost_.stages.push_back(memory_of(static_cast<size_t>(stage)));
        for (size_t stage = 0; stage < cost_.stages.size(); ++stage)
            if (cost_.stages[stage].in_memory() > cost_.fullest().in_memory())
                cost_.fullest_stage = static_cast<int>(stage);
        std::map<int, Bytes> hosts;
        std::set<std::array<int, 3>> counted;  // host, stage, tensor rank
        for (int rank = 0; rank < mesh_.world_size(); ++rank) {
            const MeshIndex index = mesh_.index_of(rank);
            const int stage = index[at(MeshAxis::kPipeline)];
            const int host = mesh_.node_of(rank);
            const MeshMemory& memory = cost_.stages[stage];
            Bytes& held = hosts[host];
            held += memory.own + memory.shared + request_.program;
            // The ranks of a host read one copy of equal parameters in the arena. (Sequence ranks
            // hold the same parameters, so they share a copy too.)
            const bool first = counted.insert({host, stage, index[at(MeshAxis::kTensor)]}).second;
            if (first || choice_.zero_stage == 3) held += memory.parameters;
        }
        for (const auto& [host, held] : hosts) cost_.host = std::max(cost_.host, held);
    }

    [[nodiscard]] MeshMemory memory_of(size_t stage) const {
        const StageWeight& weight = weights_[stage];
        const int zero = choice_.zero_stage;
        const double owned = 1.0 / data();
        MeshMemory memory;
        const bool several_hosts = data_shape_.hosts > 1;
        const OffloadPlan& offload = request_.options.offload;
        memory.parameters = weight.parameters;
        if (zero == 3)
            memory.parameters =
                part_of_bytes(weight.parameters - weight.persistent, owned) + weight.persistent;
        if (zero == 3 && offload.parameters) memory.disk += std::exchange(memory.parameters, {});
        if (zero == 3 && (several_hosts || offload.parameters))
            memory.shared += std::min(weight.parameters, weight.largest_parameters * 2);
        // From ZeRO stage 2 on, the gradients of at most two buckets are in memory at once.
        memory.shared +=
            zero < 2 ? weight.gradients : std::min(weight.gradients, weight.largest_gradients * 2);
        const bool keeps =
            zero >= 2 && (choice_.micro_batches > 1 || request_.options.norm_first());
        if (keeps) memory.own += part_of_bytes(weight.gradients, owned);
        const Bytes states = zero == 0 ? weight.states : part_of_bytes(weight.states, owned);
        (offload.states && zero > 0 ? memory.disk : memory.own) += states;
        memory.own += cost_.run.lanes[stage].live_bytes_max + model_.buffer_bytes;
        return memory;
    }

    void add_times() {
        const GroupShape sequence = widest(MeshAxis::kSequence);
        for (size_t stage = 0; stage < weights_.size(); ++stage) {
            const StageWeight& weight = weights_[stage];
            double sums_s = 0;
            if (data() > 1 && choice_.zero_stage < 2) {
                const double told_s = gradients_s(weight);
                sums_s += request_.options.norm_first()
                              ? told_s
                              : std::max(0.0, told_s - stage_backward_s(stage));
            }
            if (choice_.zero_stage == 1 || choice_.zero_stage == 2) sums_s += gathers_s(weight);
            if (sequence.ranks > 1)
                sums_s += rates_.sum_s(static_cast<double>(weight.gradients.value), 2, sequence);
            const double numel =
                static_cast<double>(weight.trained_numel) / (choice_.zero_stage == 0 ? 1 : data());
            const double update_s = rates_.update_s(numel);
            const double end_s = cost_.run.lanes[stage].end_s + sums_s + update_s;
            if (end_s < cost_.step_s) continue;
            cost_.step_s = end_s;
            cost_.pipeline_s = cost_.run.lanes[stage].end_s;
            cost_.sums_s = sums_s;
            cost_.update_s = update_s;
        }
        add_disk();
    }

    // Returns the time that a stage takes for the backward of one micro batch. During the last
    // backward of a step, this time can hide sums of gradients.
    [[nodiscard]] double stage_backward_s(size_t stage) const {
        double seconds = 0;
        for (size_t part = 0; part < costs_of_parts_.size(); ++part)
            if (stage_of_part(static_cast<int>(part)) == static_cast<int>(stage))
                seconds += backward_s(costs_of_parts_[part]);
        return seconds;
    }

    // Adds the time of the disks: everything that is offloaded is read once and written once in a
    // step. Takes the slowest host, and adds only the time by which its disks exceed the rest of
    // the step.
    void add_disk() {
        std::map<int, double> moved;
        for (int rank = 0; rank < mesh_.world_size(); ++rank) {
            const int stage = mesh_.index_of(rank)[at(MeshAxis::kPipeline)];
            moved[mesh_.node_of(rank)] += static_cast<double>(cost_.stages[stage].disk.value);
        }
        for (const auto& [host, bytes] : moved)
            if (const auto seconds = rates_.disk.seconds(bytes, bytes))
                cost_.disk_s = std::max(cost_.disk_s, *seconds);
        cost_.step_s = std::max(cost_.step_s, cost_.disk_s);
    }

    const MeshRequest& request_;
    const MeshChoice& choice_;
    const MachineRates& rates_;
    const TensorCosts* costs_;
    Mesh mesh_;
    ModelInfo model_;  // model of one rank
    FlatLayout layout_;
    std::vector<double> shares_;
    // The ranks of each data group. The ranks of a group hold the same part of a stage; they differ
    // only on the shard axis and the replica axis. The key is the stage, the tensor rank and the
    // sequence rank.
    std::map<std::array<int, 3>, std::vector<int>> data_groups_;
    GroupShape data_shape_;             // shape of the widest data group
    std::vector<StageWeight> weights_;  // by stage
    std::vector<PartCost> costs_of_parts_;
    MeshCost cost_;
};

}  // namespace

ModelInfo model_of_rank(const ModelInfo& model, const MeshSizes& sizes, const TensorCosts* costs) {
    ModelInfo made = model;
    for (size_t s = 0; s < made.segments.size(); ++s) {
        SegmentInfo& segment = made.segments[s];
        const double share = share_of_segment(model, model.segments[s], sizes, costs);
        segment.output_bytes = part_of_bytes(segment.output_bytes, 1.0 / sizes.sequence);
        for (Bytes* bytes :
             {&segment.activation_bytes, &segment.forward_peak, &segment.backward_peak,
              &segment.forward_blocks, &segment.backward_blocks, &segment.weight_half_bytes})
            *bytes = part_of_bytes(*bytes, share);
        segment.forward_flops =
            static_cast<int64_t>(static_cast<double>(segment.forward_flops) * share);
    }
    made.batch_bytes = part_of_bytes(made.batch_bytes, 1.0 / sizes.sequence);
    if (costs == nullptr || sizes.tensor == 1) return made;
    for (size_t p = 0; p < made.parameters.size(); ++p) {
        int64_t& numel = made.parameters[p].numel;
        if (costs->split[p]) numel = (numel + sizes.tensor - 1) / sizes.tensor;
    }
    return made;
}

MeshCost mesh_cost(const MeshRequest& request, const MeshChoice& choice) {
    DSL_CHECK(request.times.size() == request.model.segments.size(),
              "times of {} segments were given, but the model has {}", request.times.size(),
              request.model.segments.size());
    return MeshCoster(request, choice).run();
}

}  // namespace dslaunch::plan
