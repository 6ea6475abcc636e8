#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "plan/plan_check.h"
#include "plan/stage_model.h"
#include "support/catch.h"

namespace dslaunch {
namespace {

constexpr int kSegments = 8;
constexpr int64_t kActivations = 5000;

// Layers of their own parameters; those before FROZEN are not trained.
ModelInfo layers(int frozen = 0) {
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
    std::vector<int> nodes = {1};  // ranks of a stage by host
    int64_t recompute_groups = 0;
    bool clip = false;

    [[nodiscard]] SegmentRange span(int stage) const {
        return {kSegments * stage / stages, kSegments * (stage + 1) / stages};
    }

    // Stage by stage, all ranks.
    [[nodiscard]] std::vector<StepPlan> plans(const ModelInfo& model) const {
        const PipelineSchedule schedule = make_schedule(kind, {stages, 1, micro_batches});
        int ranks = 0;
        for (const int local : nodes) ranks += local;
        std::vector<StepPlan> made;
        for (int stage = 0; stage < stages; ++stage) {
            const ModelInfo part = stage_model(model, span(stage));
            const FlatLayout layout = make_flat_layout(part, {1 << 20, 1});
            const Partition partition = make_partition(layout, part, ShardBy::kFlat, ranks);
            int rank = 0;
            for (const int local_ranks : nodes)
                for (int local = 0; local < local_ranks; ++local) {
                    StepPlanOptions options{rank++,      ranks,         local,
                                            local_ranks, micro_batches, recompute_groups};
                    options.clip = clip;
                    options.stage = zero_stage;
                    if (nodes.size() > 1) options.node_sizes = nodes;
                    options.partition = &partition;
                    options.stage_work =
                        stage_work(model, span(stage), schedule.stages[static_cast<size_t>(stage)]);
                    made.push_back(make_step_plan(part, layout, options));
                }
        }
        return made;
    }
};

int count(const StepPlan& plan, Op op) {
    return static_cast<int>(
        std::ranges::count_if(plan.instructions, [op](const auto& i) { return i.op == op; }));
}

}  // namespace

TEST_CASE("every stage's plan is sound, alone and beside the other stages") {
    const ModelInfo model = layers();
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
                                // Each host's ranks check theirs; over one host all do together.
                                const std::vector<StepPlan> plans = pipeline.plans(model);
                                if (nodes.size() == 1)
                                    CHECK(join(check_plans(plans, stages), "; ") == "");
                            }
}

TEST_CASE("a stage holds the activations of as many micro batches as its schedule says") {
    const ModelInfo model = layers();
    for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B})
        for (const int stages : {1, 2, 4, 8})
            for (const int micro_batches : {1, 3, 8}) {
                const Pipeline pipeline{kind, stages, micro_batches};
                const std::vector<StepPlan> plans = pipeline.plans(model);
                for (int stage = 0; stage < stages; ++stage) {
                    // GPipe keeps all; 1F1B as many as there are stages from this one on.
                    const int live = kind == ScheduleKind::kGPipe
                                         ? micro_batches
                                         : std::min(micro_batches, stages - stage);
                    const auto peaks = peak_by_kind(plans[static_cast<size_t>(stage)]);
                    CHECK(peaks[static_cast<size_t>(BufferKind::kActivations)].value ==
                          live * (kSegments / stages) * kActivations);
                }
            }
}

TEST_CASE("stages send what the next one takes, and no gradients where nothing is trained") {
    const ModelInfo model = layers(/*frozen=*/5);
    const std::vector<StepPlan> plans = Pipeline{ScheduleKind::k1F1B, 4, 3}.plans(model);
    // Segments 0 to 4 have no backward: stages 0 and 1 none at all, stage 2 the second of two.
    CHECK(count(plans[0], Op::kSend) == 3);
    CHECK(count(plans[0], Op::kReceive) == 0);
    CHECK(count(plans[0], Op::kBackward) == 0);
    CHECK(count(plans[1], Op::kSend) == 3);
    CHECK(count(plans[1], Op::kReceive) == 3);
    CHECK(count(plans[2], Op::kSend) == 3);
    CHECK(count(plans[2], Op::kReceive) == 6);
    CHECK(count(plans[2], Op::kBackward) == 3);
    CHECK(count(plans[3], Op::kSend) == 3);
    CHECK(count(plans[3], Op::kReceive) == 3);
    CHECK(join(check_plans(plans, 4), "; ") == "");
}

TEST_CASE("stages that disagree about what is sent are found to wait for ever") {
    const ModelInfo model = layers();
    std::vector<StepPlan> plans = Pipeline{ScheduleKind::k1F1B, 3, 4}.plans(model);
    for (StepPlan& plan : plans)
        for (Instruction& instruction : plan.instructions)
            if (plan.rank == 0 && instruction.op == Op::kSend && instruction.micro_step == 2)
                instruction.micro_step = 3;
    CHECK(!check_plans(plans, 3).empty());
}

}  // namespace dslaunch
