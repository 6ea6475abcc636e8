#include "plan/step_plan.h"

#include "base/text.h"
#include "plan/plan_check.h"
#include "support/catch.h"

namespace dslaunch {

namespace {

// SEGMENTS layers of 3 parameters each; the first and the last share parameter 0 (tied), one layer
// is frozen.
ModelInfo layered_model(int segments) {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    model.parameters.push_back({"tied", 4000, 4, true});
    for (int s = 0; s < segments; ++s) {
        SegmentInfo segment;
        segment.name = "layer." + std::to_string(s);
        segment.output_bytes = Bytes{1000};
        segment.activation_bytes = Bytes{5000 + s};
        segment.forward_flops = 10;
        if (s == 0 || s == segments - 1) segment.parameters.push_back(0);
        for (int p = 0; p < 3; ++p) {
            segment.parameters.push_back(static_cast<int>(model.parameters.size()));
            model.parameters.push_back({segment.name + "." + std::to_string(p), 37 + p, 4, s != 2});
        }
        model.segments.push_back(segment);
    }
    return model;
}

int count(const StepPlan& plan, Op op) {
    int found = 0;
    for (const Instruction& instruction : plan.instructions) found += instruction.op == op ? 1 : 0;
    return found;
}

}  // namespace

TEST_CASE("every plan of stage 0 is sound, alone and beside the other local ranks") {
    for (const int segments : {1, 2, 3, 7}) {
        const ModelInfo model = layered_model(segments);
        for (const int64_t bucket_min : {1, 200, 1 << 20}) {
            const FlatLayout layout = make_flat_layout(model, {1 << 20, bucket_min});
            for (const int ranks : {1, 2, 3, 5, 8})
                for (const int64_t accumulation : {1, 2, 3})
                    for (const int64_t groups : {0, 1, 2, 100})
                        for (const int flags : {0, 1, 2, 3, 4}) {
                            std::vector<StepPlan> plans;
                            for (int rank = 0; rank < ranks; ++rank) {
                                StepPlanOptions options{rank,  ranks,        rank,
                                                        ranks, accumulation, groups};
                                options.clip = (flags & 1) != 0;
                                options.reduce_each_micro_step = (flags & 2) != 0;
                                options.fused_update = (flags & 4) != 0;
                                plans.push_back(make_step_plan(model, layout, options));
                                CHECK(plans.back().hash() == plans.front().hash());
                            }
                            INFO("segments " << segments << " ranks " << ranks << " accumulation "
                                             << accumulation << " groups " << groups << " flags "
                                             << flags);
                            CHECK(join(check_plan(plans.front()), "; ") == "");
                            CHECK(join(check_plans(plans), "; ") == "");
                        }
        }
    }
}

TEST_CASE("each bucket is reduced once a step, or once a micro step when asked") {
    const ModelInfo model = layered_model(5);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    StepPlanOptions options;
    options.accumulation_steps = 3;
    const int buckets = static_cast<int>(layout.buckets.size());
    CHECK(count(make_step_plan(model, layout, options), Op::kReduce) == buckets);
    options.reduce_each_micro_step = true;
    CHECK(count(make_step_plan(model, layout, options), Op::kReduce) == 3 * buckets);
    CHECK(count(make_step_plan(model, layout, options), Op::kUpdate) == buckets);
}

TEST_CASE("recompute trades activations for work and never loses a segment") {
    const ModelInfo model = layered_model(8);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    StepPlanOptions options;
    const StepPlan kept = make_step_plan(model, layout, options);
    options.recompute_groups = 4;
    const StepPlan again = make_step_plan(model, layout, options);
    CHECK(count(kept, Op::kRecompute) == 0);
    CHECK(count(again, Op::kRecompute) == 8);
    CHECK(peak_by_tier(again)[0].peak < peak_by_tier(kept)[0].peak);
    // Kept: all 8 activations (5000 + s each) and the 9 values alive between them, at the start of
    // backward.
    const int64_t activations = 8 * 5000 + 28;
    CHECK((peak_by_tier(kept)[0].peak - peak_by_tier(kept)[0].persistent).value >=
          activations + 8 * 1000 + 100);
    const std::vector<RecomputeGroup> groups = make_recompute_groups(model, 3);
    CHECK(groups.front().begin == 0);
    CHECK(groups.back().end == 8);
    for (size_t g = 1; g < groups.size(); ++g) CHECK(groups[g].begin == groups[g - 1].end);
}

TEST_CASE("the checker finds what a broken plan does wrong") {
    const ModelInfo model = layered_model(4);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    const StepPlan sound = make_step_plan(model, layout, {});
    REQUIRE(check_plan(sound).empty());

    SECTION("a wait that was dropped") {
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kReduce) instruction.waits.clear();
        CHECK_THAT(join(check_plan(plan), "; "), Catch::Matchers::Contains("nothing orders them"));
    }
    SECTION("a use after its release") {
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kBackward && instruction.segment == 1) {
                plan.instructions.push_back(instruction);
                break;
            }
        CHECK_THAT(join(check_plan(plan), "; "), Catch::Matchers::Contains("after its release"));
    }
    SECTION("a buffer that is never freed") {
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kBackward) instruction.frees.clear();
        CHECK_THAT(join(check_plan(plan), "; "), Catch::Matchers::Contains("never freed"));
    }
    SECTION("a reduction before the last gradient") {
        StepPlan plan = sound;
        size_t reduce = 0;
        for (size_t i = 0; i < plan.instructions.size(); ++i)
            if (plan.instructions[i].op == Op::kReduce) reduce = i;
        std::rotate(plan.instructions.begin() + 6,
                    plan.instructions.begin() + static_cast<long>(reduce),
                    plan.instructions.begin() + static_cast<long>(reduce) + 1);
        for (Instruction& instruction : plan.instructions) instruction.waits.clear();
        CHECK_THAT(join(check_plan(plan), "; "),
                   Catch::Matchers::Contains("adds to a bucket after"));
    }
    SECTION("ranks that reduce in different orders") {
        StepPlan other = sound;
        other.rank = 1;
        std::vector<size_t> reduces;
        for (size_t i = 0; i < other.instructions.size(); ++i)
            if (other.instructions[i].op == Op::kReduce) reduces.push_back(i);
        REQUIRE(reduces.size() >= 2);
        std::swap(other.instructions[reduces[0]].bucket, other.instructions[reduces[1]].bucket);
        const std::vector<StepPlan> plans = {sound, other};
        CHECK_THAT(join(check_plans(plans), "; "), Catch::Matchers::Contains("differs"));
    }
    SECTION("a rank that never posts a bucket") {
        StepPlan other = sound;
        other.rank = 1;
        for (Instruction& instruction : other.instructions)
            if (instruction.op == Op::kPost) instruction.op = Op::kLoad;
        const std::vector<StepPlan> plans = {sound, other};
        CHECK_THAT(join(check_plans(plans), "; "), Catch::Matchers::Contains("never gets past"));
    }
}

TEST_CASE("the flat layout holds each trainable parameter once, aligned, in buckets that tile it") {
    for (const int segments : {1, 3, 9}) {
        const ModelInfo model = layered_model(segments);
        for (const int64_t bucket_max : {1, 100, 5000, 1 << 30}) {
            for (const int64_t bucket_min : {1, 300, 1 << 20}) {
                const FlatLayout layout = make_flat_layout(model, {bucket_max, bucket_min});
                std::vector<int> seen(model.parameters.size(), 0);
                int64_t end = 0;
                for (const ParameterSlice& slice : layout.slices) {
                    ++seen[static_cast<size_t>(slice.parameter)];
                    CHECK(slice.offset_numel == end);
                    CHECK(slice.offset_numel % kSliceAlignmentNumel == 0);
                    end = slice.offset_numel + round_up(slice.numel, kSliceAlignmentNumel);
                }
                CHECK(end == layout.numel);
                for (size_t p = 0; p < seen.size(); ++p)
                    CHECK(seen[p] == (model.parameters[p].trainable ? 1 : 0));
                int64_t covered = 0;
                int slice = 0;
                for (const Bucket& bucket : layout.buckets) {
                    CHECK(bucket.offset_numel == covered);
                    CHECK(bucket.first_slice == slice);
                    covered += bucket.numel;
                    slice = bucket.end_slice;
                    const bool one_slice = bucket.end_slice - bucket.first_slice == 1;
                    CHECK((one_slice || bucket.numel <= bucket_max));
                }
                CHECK(covered == layout.numel);
                CHECK(slice == static_cast<int>(layout.slices.size()));
            }
        }
    }
}

}  // namespace dslaunch
