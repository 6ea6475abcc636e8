// The plans of steps whose updates lag: the bytes that move, the instructions that wait for others,
// and the memory that is needed.
#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns 4 layers with one matrix each.
ModelInfo lagging_plan_layers() {
    ModelInfo model;
    for (int s = 0; s < 4; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.parameters = {s};
        segment.output_bytes = segment.activation_bytes = Bytes{1000};
        model.parameters.push_back({fmt::format("w{}", s), 64 * 1024, 4, true, 256});
        model.segments.push_back(segment);
    }
    return model;
}

struct LagJob {
    int ranks = 2;
    int stage = 2;
    bool on_disk = true;
    bool half = false;
    bool clip = false;
    int64_t accumulation = 1;
};

std::vector<StepPlan> plans_of(const LagJob& job, const LagPlan& lag) {
    const ModelInfo model = lagging_plan_layers();
    const FlatLayout layout = make_flat_layout(model, {64 * 1024, 1});
    const Partition partition = make_partition(layout, model, ShardBy::kFlat, job.ranks);
    std::vector<StepPlan> plans;
    for (int rank = 0; rank < job.ranks; ++rank) {
        StepPlanOptions options{rank, job.ranks, rank, job.ranks, job.accumulation};
        options.stage = job.stage;
        options.partition = &partition;
        options.clip = job.clip;
        options.parameter_bytes = job.half ? 2 : 4;
        options.master = job.half;
        if (job.on_disk) options.offload = {true, false, 16 * 1024, 2};
        options.lag = lag;
        plans.push_back(make_step_plan(model, layout, options));
    }
    return plans;
}

LagPlan lag_of(Lag kind, bool overlaps, bool selects = false) {
    LagPlan lag;
    lag.on = true;
    lag.overlaps = overlaps;
    lag.kind = kind;
    lag.selects = selects;
    return lag;
}

int lagging_plan_count(const StepPlan& plan, Op op) {
    return static_cast<int>(std::ranges::count(plan.instructions, op, &Instruction::op));
}

// Returns the bytes of chunks, without the bytes of sums.
int64_t moved_chunks(const StepPlan& plan) {
    int64_t bytes = 0;
    for (const Instruction& instruction : plan.instructions)
        if ((instruction.op == Op::kRead || instruction.op == Op::kWrite) &&
            instruction.buffer >= 0)
            bytes += instruction.bytes.value;
    return bytes;
}

int64_t held(const StepPlan& plan, std::string_view begin) {
    int64_t bytes = 0;
    for (const PlanBuffer& buffer : plan.buffers)
        if (buffer.name.starts_with(begin)) bytes += buffer.bytes.value;
    return bytes;
}

}  // namespace

TEST_CASE("plans whose updates lag are sound, alone and beside the other local ranks") {
    for (const int stage : {0, 1, 2, 3})
        for (const int ranks : {1, 2, 3, 5})
            for (const bool on_disk : {false, true})
                for (const int64_t accumulation : {1, 3})
                    for (const bool clip : {false, true})
                        for (const bool overlaps : {false, true})
                            for (const Lag kind : {Lag::kWhole, Lag::kPartial, Lag::kLate}) {
                                if (kind == Lag::kLate && !overlaps) continue;
                                const LagJob job{ranks, stage, on_disk && stage > 0,
                                                 false, clip,  accumulation};
                                CAPTURE(stage, ranks, on_disk, accumulation, clip, overlaps,
                                        static_cast<int>(kind));
                                const auto plans = plans_of(job, lag_of(kind, overlaps, true));
                                CHECK(join(check_plans(plans), "; ") == "");
                                CHECK(lagging_plan_count(plans[0], Op::kSelect) == 1);
                            }
}

TEST_CASE("a step that updates important units moves no chunk, and a late update moves each once") {
    const LagJob job{.stage = 1};
    const StepPlan exact = plans_of(job, {}).front();
    const StepPlan whole = plans_of(job, lag_of(Lag::kWhole, true)).front();
    const StepPlan partial = plans_of(job, lag_of(Lag::kPartial, true)).front();
    const StepPlan late = plans_of(job, lag_of(Lag::kLate, true)).front();
    REQUIRE(moved_chunks(exact) > 0);
    CHECK(moved_chunks(whole) == moved_chunks(exact));
    CHECK(moved_chunks(partial) == 0);
    CHECK(moved_chunks(late) == moved_chunks(exact));
    for (const StepPlan* plan : {&exact, &whole, &partial, &late})
        CHECK(lagging_plan_count(*plan, Op::kUpdate) == lagging_plan_count(exact, Op::kUpdate));
    CHECK(lagging_plan_count(late, Op::kUpdateRest) == lagging_plan_count(exact, Op::kUpdate));
    CHECK(lagging_plan_count(partial, Op::kUpdateRest) == 0);
    CHECK(late.hash() != partial.hash());
    CHECK(whole.hash() != plans_of(job, lag_of(Lag::kWhole, true, true)).front().hash());
}

// At stages 2 and 3 with states on disk, sums of gradients wait in the disk lanes until chunks have
// passed.
TEST_CASE("forward and backward wait for no late update, the norm waits for all") {
    for (const LagJob& job :
         {LagJob{.stage = 1}, LagJob{.stage = 1, .half = true},
          LagJob{.stage = 3, .on_disk = false}, LagJob{.stage = 0, .on_disk = false}}) {
        const StepPlan late = plans_of(job, lag_of(Lag::kLate, true)).front();
        std::vector<char> behind(late.instructions.size(), 0);  // a late update
        int updates = 0;
        for (size_t i = 0; i < late.instructions.size(); ++i) {
            const Instruction& instruction = late.instructions[i];
            for (const int wait : instruction.waits)
                if (behind[static_cast<size_t>(wait)] != 0) behind[i] = 1;
            for (size_t k = 0; k < i; ++k)
                if (late.instructions[k].lane == instruction.lane && behind[k] != 0) behind[i] = 1;
            if (instruction.op == Op::kUpdateRest) behind[i] = 1;
            if (instruction.op == Op::kForward || instruction.op == Op::kBackward)
                CHECK(behind[i] == 0);
            if (instruction.op == Op::kUpdate) updates += behind[i];
        }
        CHECK(updates == lagging_plan_count(late, Op::kUpdate));
    }
}

TEST_CASE("the plan counts what lagging updates keep") {
    constexpr int64_t kShard = 4 * 64 * 1024 / 2;
    for (const bool half : {false, true})
        for (const bool overlaps : {false, true}) {
            const LagJob job{.half = half};
            const StepPlan plan = plans_of(job, lag_of(Lag::kWhole, overlaps)).front();
            CHECK(held(plan, "waiting gradients") ==
                  kShard * (4 + (overlaps ? (half ? 2 : 4) : 0)));
            CHECK(held(plan, "choice") == 2 * kShard / kUnitNumel * 9);
            const int64_t states = held(plan, "important states");
            CHECK(states == kShard * 6 / 64 * (half ? 12 : 8));  // 6 of the 64 units of a block
        }
    CHECK(held(plans_of({}, {}).front(), "waiting gradients") == 0);
}

TEST_CASE("one unit in ten, at least one, is important") {
    CHECK(important_units(64, 0.1) == 6);
    CHECK(important_units(10, 0.1) == 1);
    CHECK(important_units(3, 0.01) == 1);
    CHECK(important_units(64, 0.99) == 63);
    CHECK(important_units(1, 0.5) == 1);
}

}  // namespace dslaunch
