// The plan of a rank on a GPU: instructions that are put off, those that stay, and a sound order.
#include "plan/step/device_plan.h"

#include <algorithm>

#include "base/text.h"
#include "plan/step/plan_check.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;
namespace {

// SEGMENTS layers of two parameters each; the first and the last share parameter 0.
ModelInfo layers(int segments) {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    model.parameters.push_back({"tied", 4000, 4, true});
    for (int s = 0; s < segments; ++s) {
        SegmentInfo segment;
        segment.output_bytes = Bytes{1000};
        segment.activation_bytes = Bytes{5000};
        if (s == 0 || s == segments - 1) segment.parameters.push_back(0);
        for (const int64_t numel : {37, 300}) {
            segment.parameters.push_back(static_cast<int>(model.parameters.size()));
            model.parameters.push_back({"p", numel, 4, true});
        }
        model.segments.push_back(segment);
    }
    return model;
}

int64_t count(const StepPlan& plan, Op op) {
    return std::count_if(plan.instructions.begin(), plan.instructions.end(),
                         [op](const Instruction& instruction) { return instruction.op == op; });
}

// The place of OP's last (first) instruction for BUCKET, -1: for any bucket.
int last(const StepPlan& plan, Op op, int bucket = -1) {
    for (size_t i = plan.instructions.size(); i-- > 0;)
        if (plan.instructions[i].op == op && (bucket < 0 || plan.instructions[i].bucket == bucket))
            return static_cast<int>(i);
    return -1;
}

int first(const StepPlan& plan, Op op) {
    for (size_t i = 0; i < plan.instructions.size(); ++i)
        if (plan.instructions[i].op == op) return static_cast<int>(i);
    return -1;
}

}  // namespace

TEST_CASE("a device's plan has the same work, sound, in its own memory") {
    for (const int segments : {1, 2, 5})
        for (const int64_t bucket_min : {1, 1 << 20})
            for (const int64_t accumulation : {1, 3})
                for (const int64_t groups : {0, 2})
                    for (const int flags : {0, 1, 2, 3}) {
                        const ModelInfo model = layers(segments);
                        const FlatLayout layout = make_flat_layout(model, {1 << 20, bucket_min});
                        StepPlanOptions options{0, 2, 0, 2, accumulation, groups};
                        options.clip = (flags & 1) != 0;
                        options.reduce_each_micro_step = (flags & 2) != 0;
                        const StepPlan host = make_step_plan(model, layout, options);
                        const StepPlan device = make_device_plan(host);
                        INFO(segments << " segments, accumulation " << accumulation << ", groups "
                                      << groups << ", flags " << flags);
                        CHECK(join(check_plan(device), "; ") == "");
                        CHECK(device.hash() != host.hash());
                        CHECK(count(device, Op::kAwait) == 0);
                        for (const Op op :
                             {Op::kLoad, Op::kForward, Op::kRecompute, Op::kClaim, Op::kBackward,
                              Op::kPost, Op::kReduce, Op::kAccumulate, Op::kNorm, Op::kUpdate})
                            CHECK(count(device, op) == count(host, op));
                        CHECK(peak_by_tier(device)[static_cast<size_t>(Tier::kShared)].peak.value ==
                              0);
                        CHECK(last(device, Op::kBackward) < first(device, Op::kUpdate));
                        for (const Instruction& instruction : device.instructions) {
                            const bool reduces = instruction.op == Op::kReduce;
                            CHECK((instruction.lane == Lane::kCommunication) == reduces);
                            CHECK((instruction.bytes.value > 0) == reduces);
                        }
                    }
}

TEST_CASE("a reduced micro step is added up only when its bucket is needed again") {
    const ModelInfo model = layers(3);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    StepPlanOptions options{0, 2, 0, 2, 2};
    options.reduce_each_micro_step = true;
    const StepPlan plan = make_device_plan(make_step_plan(model, layout, options));
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        if (instruction.op != Op::kAccumulate || instruction.micro_step != 0) continue;
        CHECK(plan.instructions[i + 1].op == Op::kClaim);
        CHECK(plan.instructions[i + 1].bucket == instruction.bucket);
    }
}

TEST_CASE("what a put-off instruction would have freed is freed where it was") {
    // The last Update of the host's plan without accumulation frees the micro step's live values.
    const ModelInfo model = layers(4);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    const StepPlan host = make_step_plan(model, layout, {0, 2, 0, 2});
    const StepPlan device = make_device_plan(host);
    for (const Instruction& instruction : device.instructions)
        if (instruction.op == Op::kUpdate) CHECK(instruction.frees.empty());
    const auto peak = [](const StepPlan& plan) {
        int64_t bytes = 0;
        for (const TierPeak& tier : peak_by_tier(plan))
            bytes += tier.peak.value - tier.persistent.value;
        return bytes;
    };
    CHECK(peak(device) <= peak(host));
}

}  // namespace dslaunch
