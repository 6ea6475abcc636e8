#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "plan/pipeline/stage_model.h"
#include "plan/step/plan_check.h"
#include "support/catch.h"
#include "unit/plan/pipeline/pipeline_shapes.h"

namespace dslaunch {

using namespace plan;
namespace {

constexpr int kSegments = 12;
constexpr int64_t kActivations = 5000;

// Returns layers with parameters of their own. Layers before FROZEN are not trained.
ModelInfo stage_plan_layers(int frozen = 0) {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    for (int s = 0; s < kSegments; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.output_bytes = Bytes{1000};
        segment.activation_bytes = Bytes{kActivations};
        segment.forward_flops = 10;
        segment.backward = s >= frozen;
        for (int p = 0; p < 2; ++p) {
            segment.parameters.push_back(static_cast<int>(model.parameters.size()));
            model.parameters.push_back(
                {fmt::format("{}.{}", segment.name, p), 3000 + p, 4, s >= frozen});
        }
        model.segments.push_back(segment);
    }
    return model;
}

struct Pipeline {
    ScheduleKind kind = ScheduleKind::k1F1B;
    int stages = 2;
    int micro_batches = 4;
    int zero_stage = 0;
    std::vector<int> nodes = {1};  // ranks of a stage on each host
    int64_t recompute_groups = 0;
    bool clip = false;
    int chunks = 1;

    [[nodiscard]] PipelineShape shape() const { return {stages, chunks, micro_batches}; }
    // Returns the segments of each part of the model.
    [[nodiscard]] std::vector<SegmentRange> parts() const {
        std::vector<SegmentRange> made;
        const int count = shape().parts();
        for (int part = 0; part < count; ++part)
            made.push_back({kSegments * part / count, kSegments * (part + 1) / count});
        return made;
    }

    // Returns the plans of all ranks, stage by stage.
    [[nodiscard]] std::vector<StepPlan> plans(const ModelInfo& model) const {
        const PipelineSchedule schedule = make_schedule(kind, shape());
        const auto ranges = ranges_of_stages(kind, shape(), parts());
        int ranks = 0;
        for (const int local : nodes) ranks += local;
        std::vector<StepPlan> made;
        for (int stage = 0; stage < stages; ++stage) {
            const ModelInfo own = stage_model(model, ranges[stage]);
            FlatLayoutOptions layout_options{1 << 20, 1};
            StepPlanOptions options;
            options.stage_work = stage_work(model, parts(), schedule, stage);
            layout_options.part_begins = part_begins(options.stage_work);
            const FlatLayout layout = make_flat_layout(own, layout_options);
            const Partition partition = make_partition(layout, own, ShardBy::kFlat, ranks);
            int rank = 0;
            for (const int local_ranks : nodes)
                for (int local = 0; local < local_ranks; ++local) {
                    options.rank = rank++;
                    options.world_size = ranks;
                    options.local_rank = local;
                    options.local_world_size = local_ranks;
                    options.accumulation_steps = micro_batches;
                    options.recompute_groups = recompute_groups;
                    options.clip = clip;
                    options.stage = zero_stage;
                    if (nodes.size() > 1) options.node_sizes = nodes;
                    options.partition = &partition;
                    made.push_back(make_step_plan(own, layout, options));
                }
        }
        return made;
    }
};

int stage_plan_count(const StepPlan& plan, Op op) {
    return static_cast<int>(
        std::ranges::count_if(plan.instructions, [op](const auto& i) { return i.op == op; }));
}

// Returns the largest number of segments' forwards that are alive at once, with their activations
// or with their second half's values.
int live_segments(const StepPlan& plan) {
    int live = 0;
    int most = 0;
    for (const Instruction& instruction : plan.instructions) {
        if (instruction.op == Op::kForward) most = std::max(most, ++live);
        if (instruction.op == Op::kBackward || instruction.op == Op::kBackwardWeight) --live;
    }
    return most;
}

struct Chunked {
    ScheduleKind kind = ScheduleKind::kInterleaved;
    int chunks = 2;
};
constexpr std::array kChunked = {Chunked{ScheduleKind::kInterleaved, 2},
                                 Chunked{ScheduleKind::kInterleaved, 3},
                                 Chunked{ScheduleKind::kZeroBubbleV, 2}};

}  // namespace

TEST_CASE("every stage's plan is sound, alone and beside the other stages") {
    const ModelInfo model = stage_plan_layers();
    for (const ScheduleKind kind :
         {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1})
        for (const int stages : {1, 2, 3, 5, 8})
            for (const int micro_batches : {1, 2, 3, 8, 11})
                for (const int zero_stage : {0, 1, 2, 3})
                    for (const std::vector<int>& nodes : {std::vector<int>{1}, {2}, {1, 1}, {2, 1}})
                        for (const int64_t groups : {0, 1})
                            for (const bool clip : {false, true}) {
                                const Pipeline pipeline{kind,  stages, micro_batches, zero_stage,
                                                        nodes, groups, clip};
                                INFO(schedule_name(kind)
                                     << ", " << stages << " stages, " << micro_batches
                                     << " micro batches, ZeRO " << zero_stage << ", "
                                     << nodes.size() << " hosts, " << groups << " groups, clip "
                                     << clip);
                                // Plans are checked among the ranks of a host, so all plans are
                                // checked together only on one host.
                                const std::vector<StepPlan> plans = pipeline.plans(model);
                                if (nodes.size() == 1)
                                    CHECK(join(check_plans(plans, stages), "; ") == "");
                            }
}

TEST_CASE("plans of stages with several parts are sound, alone and beside each other") {
    const ModelInfo model = stage_plan_layers();
    for (const auto& [kind, chunks] : kChunked)
        for (const int stages : {1, 2, 3, 4, 5})
            for (const int micro_batches : {1, 2, 3, 5, 8, 11})
                for (const int zero_stage : {0, 1, 2, 3})
                    for (const std::vector<int>& nodes : {std::vector<int>{1}, {2}, {1, 1}})
                        for (const int64_t groups : {0, 1}) {
                            Pipeline pipeline{kind,       stages, micro_batches,
                                              zero_stage, nodes,  groups};
                            pipeline.chunks = chunks;
                            pipeline.clip = micro_batches % 2 == 0;
                            if (pipeline.shape().parts() > kSegments) continue;
                            INFO(schedule_name(kind)
                                 << " of " << chunks << ", " << stages << " stages, "
                                 << micro_batches << " micro batches, ZeRO " << zero_stage << ", "
                                 << nodes.size() << " hosts, " << groups << " groups");
                            const std::vector<StepPlan> plans = pipeline.plans(model);
                            if (nodes.size() == 1)
                                CHECK(join(check_plans(plans, stages), "; ") == "");
                        }
}

TEST_CASE("stages with several parts hold as many activations as their schedule says") {
    for (const auto& [kind, chunks] : kChunked)
        for (int stages = 1; stages <= 4; ++stages)
            for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
                ModelInfo model = stage_plan_layers();
                Pipeline pipeline{kind, stages, micro_batches};
                pipeline.chunks = chunks;
                const int of_part = kSegments / pipeline.shape().parts();
                if (of_part * pipeline.shape().parts() != kSegments) continue;
                INFO(schedule_name(kind) << " of " << chunks << ", " << stages << " stages, "
                                         << micro_batches << " micro batches");
                const std::vector<StepPlan> plans = pipeline.plans(model);
                for (int stage = 0; stage < stages; ++stage) {
                    INFO("stage " << stage);
                    const StepPlan& plan = plans[stage];
                    const int bound = live_bound(kind, pipeline.shape(), stage);
                    CHECK(live_segments(plan) <= bound * of_part);
                    // If there are fewer micro batches than a regular order needs, a schedule holds
                    // fewer.
                    if (micro_batches >= 2 * stages - 1)
                        CHECK(live_segments(plan) == bound * of_part);
                    if (kind != ScheduleKind::kInterleaved) continue;
                    CHECK(peak_by_kind(plan)[static_cast<size_t>(BufferKind::kActivations)].value ==
                          bound * of_part * kActivations);
                }
            }
}

TEST_CASE("what lies between two parts of a stage is never sent to itself") {
    const ModelInfo model = stage_plan_layers();
    for (const int stages : {1, 2, 3}) {
        Pipeline pipeline{ScheduleKind::kZeroBubbleV, stages, 5};
        pipeline.chunks = 2;
        const std::vector<StepPlan> plans = pipeline.plans(model);
        for (int stage = 0; stage < stages; ++stage) {
            const StepPlan& plan = plans[stage];
            for (const Instruction& instruction : plan.instructions) {
                if (instruction.op != Op::kSend && instruction.op != Op::kReceive) continue;
                CHECK(std::abs(instruction.peer - stage) == 1);
            }
            // At each cut, the values and gradients of both parts are sent and received. Nothing is
            // sent at the turn of the V, and nothing for batches and the loss.
            const int cuts = stages == 1 ? 0 : (stage > 0 ? 2 : 0) + (stage + 1 < stages ? 2 : 0);
            CHECK(stage_plan_count(plan, Op::kSend) == 5 * cuts);
            CHECK(stage_plan_count(plan, Op::kReceive) == 5 * cuts);
            CHECK(stage_plan_count(plan, Op::kLoad) == (stage == 0 ? 5 : 0));
        }
    }
}

TEST_CASE("both ends of a lane have the same messages in the same order") {
    // Each message that may be on its way to a rank at once needs a ring of its own: see
    // runtime/comm/host_link.cpp.
    constexpr size_t kLanesToRank = 4;
    const ModelInfo model = stage_plan_layers();
    for (const auto& [kind, chunks] : kChunked)
        for (const int stages : {2, 3, 4, 5})
            for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
                Pipeline pipeline{kind, stages, micro_batches};
                pipeline.chunks = chunks;
                if (pipeline.shape().parts() > kSegments) continue;
                INFO(schedule_name(kind) << " of " << chunks << ", " << stages << " stages, "
                                         << micro_batches << " micro batches");
                using Message = std::tuple<int, bool, int>;  // part, gradients, micro step
                using End = std::tuple<int, int, int>;       // from stage, to stage, lane
                std::map<End, std::vector<Message>> sent, received;
                const std::vector<StepPlan> plans = pipeline.plans(model);
                for (int stage = 0; stage < stages; ++stage)
                    for (const Instruction& i : plans[stage].instructions) {
                        const Message message{i.part, i.gradients, i.micro_step};
                        const int lane = static_cast<int>(i.lane) / 2;
                        if (i.op == Op::kSend) sent[{stage, i.peer, lane}].push_back(message);
                        if (i.op == Op::kReceive)
                            received[{i.peer, stage, lane}].push_back(message);
                    }
                CHECK(sent == received);
                std::map<int, size_t> lanes_to;
                for (const auto& [end, messages] : sent) ++lanes_to[std::get<1>(end)];
                for (const auto& [stage, lanes] : lanes_to) CHECK(lanes <= kLanesToRank);
            }
}

TEST_CASE("buckets lie in one part, and a parameter of two parts is summed beside them") {
    ModelInfo model = stage_plan_layers();
    // The last segment reads the first one's table too. In a V, both are on stage 0.
    model.segments.back().parameters.push_back(0);
    Pipeline pipeline{ScheduleKind::kZeroBubbleV, 2, 4, 2};
    pipeline.chunks = 2;
    const std::vector<StepPlan> plans = pipeline.plans(model);
    CHECK(join(check_plans(plans, 2), "; ") == "");
    int sums = 0;
    for (const PlanBuffer& buffer : plans[0].buffers)
        sums += buffer.name.starts_with("sum of the gradients of layer.0.0") ? 1 : 0;
    CHECK(sums == 4);  // one for each micro step
    CHECK(stage_plan_count(plans[0], Op::kTie) == 0);
}

TEST_CASE("a stage holds the activations of as many micro batches as its schedule says") {
    const ModelInfo model = stage_plan_layers();
    for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B})
        for (const int stages : {1, 2, 4, 6})
            for (const int micro_batches : {1, 3, 8}) {
                const Pipeline pipeline{kind, stages, micro_batches};
                const std::vector<StepPlan> plans = pipeline.plans(model);
                for (int stage = 0; stage < stages; ++stage) {
                    // GPipe keeps all micro batches. 1F1B keeps as many as there are stages from
                    // this one on.
                    const int live = kind == ScheduleKind::kGPipe
                                         ? micro_batches
                                         : std::min(micro_batches, stages - stage);
                    const auto peaks = peak_by_kind(plans[stage]);
                    CHECK(peaks[static_cast<size_t>(BufferKind::kActivations)].value ==
                          live * (kSegments / stages) * kActivations);
                }
            }
}

TEST_CASE("stages send what the next one takes, and no gradients where nothing is trained") {
    const ModelInfo model = stage_plan_layers(/*frozen=*/8);
    const std::vector<StepPlan> plans = Pipeline{ScheduleKind::k1F1B, 4, 3}.plans(model);
    // Segments 0 to 7 have no backward: stages 0 and 1 have none at all, stage 2 has one for
    // the last of three.
    CHECK(stage_plan_count(plans[0], Op::kSend) == 3);
    CHECK(stage_plan_count(plans[0], Op::kReceive) == 0);
    CHECK(stage_plan_count(plans[0], Op::kBackward) == 0);
    CHECK(stage_plan_count(plans[1], Op::kSend) == 3);
    CHECK(stage_plan_count(plans[1], Op::kReceive) == 3);
    CHECK(stage_plan_count(plans[2], Op::kSend) == 3);
    CHECK(stage_plan_count(plans[2], Op::kReceive) == 6);
    CHECK(stage_plan_count(plans[2], Op::kBackward) == 3);
    CHECK(stage_plan_count(plans[3], Op::kSend) == 3);
    CHECK(stage_plan_count(plans[3], Op::kReceive) == 3);
    CHECK(join(check_plans(plans, 4), "; ") == "");
}

TEST_CASE("stages that disagree about what is sent are found to wait for ever") {
    const ModelInfo model = stage_plan_layers();
    std::vector<StepPlan> plans = Pipeline{ScheduleKind::k1F1B, 3, 4}.plans(model);
    for (StepPlan& plan : plans)
        for (Instruction& instruction : plan.instructions)
            if (plan.rank == 0 && instruction.op == Op::kSend && instruction.micro_step == 2)
                instruction.micro_step = 3;
    CHECK(!check_plans(plans, 3).empty());
}

TEST_CASE("a message of another part is found to be waited for for ever") {
    const ModelInfo model = stage_plan_layers();
    for (const auto& [kind, chunks] : kChunked) {
        Pipeline pipeline{kind, 2, 4};
        pipeline.chunks = chunks;
        std::vector<StepPlan> plans = pipeline.plans(model);
        REQUIRE(check_plans(plans, 2).empty());
        for (Instruction& instruction : plans[0].instructions)
            if (instruction.op == Op::kSend && instruction.part == 0 && !instruction.gradients)
                instruction.part = 2;
        CHECK(!check_plans(plans, 2).empty());
    }
}

}  // namespace dslaunch
