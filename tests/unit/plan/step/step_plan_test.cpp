#include "plan/step/step_plan.h"

#include <fmt/core.h>

#include <cstddef>
#include <map>

#include "base/text.h"
#include "plan/step/plan_check.h"
#include "plan/step/recompute_groups.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns SEGMENTS layers of 3 parameters each. The first and the last share parameter 0 (tied),
// and one layer is frozen.
ModelInfo layered_model(int segments) {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    model.parameters.push_back({"tied", 4000, 4, true});
    for (int s = 0; s < segments; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
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

// A job over hosts; FLAGS: 1 clips, 2 reduces each micro step.
struct StepPlanJob {
    std::vector<int> nodes;
    int stage = 0;
    int64_t accumulation = 1;
    int64_t groups = 0;
    int flags = 0;
    bool half = false;
    GatherLimits gather = {};
    HostWire wire = {};

    [[nodiscard]] std::vector<StepPlan> plans(const ModelInfo& model,
                                              const FlatLayout& layout) const {
        int world_size = 0;
        for (const int ranks : nodes) world_size += ranks;
        const Partition partition = make_partition(layout, model, ShardBy::kFlat, world_size);
        std::vector<StepPlan> made;
        for (const int ranks : nodes) {
            for (int local = 0; local < ranks; ++local) {
                StepPlanOptions options{
                    static_cast<int>(made.size()), world_size, local, ranks, accumulation, groups};
                options.clip = (flags & 1) != 0;
                options.reduce_each_micro_step = (flags & 2) != 0;
                options.stage = stage;
                if (nodes.size() > 1) options.node_sizes = nodes;
                options.parameter_bytes = half ? 2 : 4;
                options.master = half;
                options.partition = &partition;
                options.gather = gather;
                options.wire = wire;
                made.push_back(make_step_plan(model, layout, options));
            }
        }
        return made;
    }
};

// Returns 4 layers of 64 Ki elements. With blocks of 64, shards are exactly equal.
ModelInfo four_layers() {
    ModelInfo model;
    for (int s = 0; s < 4; ++s) {
        SegmentInfo segment;
        segment.parameters = {s};
        model.parameters.push_back({fmt::format("w{}", s), 65536, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

// Returns the persistent bytes of KIND.
int64_t step_plan_held(const StepPlan& plan, BufferKind kind) {
    int64_t bytes = 0;
    for (const PlanBuffer& buffer : plan.buffers)
        if (buffer.kind == kind && buffer.persistent) bytes += buffer.bytes.value;
    return bytes;
}

int step_plan_count(const StepPlan& plan, Op op) {
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

TEST_CASE("every plan of stages 1 to 3 is sound, alone and beside all other ranks") {
    const std::vector<std::vector<int>> worlds = {{1}, {2}, {5}, {1, 1}, {2, 1}, {1, 1, 1}, {3, 2}};
    for (const int segments : {1, 2, 5}) {
        const ModelInfo model = layered_model(segments);
        for (const int64_t persistent : {0, 37}) {
            FlatLayoutOptions sizes{1 << 20, 1, true, persistent, 64};
            const FlatLayout layout = make_flat_layout(model, sizes);
            for (const std::vector<int>& nodes : worlds)
                for (const int stage : {1, 2, 3})
                    for (const int64_t accumulation : {1, 3})
                        for (const int64_t groups : {0, 2})
                            for (const int flags : {0, 1, 2, 3}) {
                                StepPlanJob job{nodes, stage, accumulation, groups, flags};
                                const std::vector<StepPlan> plans = job.plans(model, layout);
                                INFO("segments " << segments << " stage " << stage << " ranks "
                                                 << plans.size() << " hosts " << nodes.size()
                                                 << " accumulation " << accumulation << " groups "
                                                 << groups << " flags " << flags);
                                for (const StepPlan& plan : plans)
                                    CHECK(plan.hash() == plans.front().hash());
                                CHECK(join(check_plan(plans.front()), "; ") == "");
                                CHECK(join(check_plans(plans), "; ") == "");
                            }
        }
    }
}

TEST_CASE("each stage holds what the ZeRO formula gives it") {
    const ModelInfo model = four_layers();
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, true, 0, 64});
    const int64_t numel = 4 * 65536;
    for (const int ranks : {1, 2, 4, 8}) {
        for (int stage = 0; stage <= 3; ++stage) {
            for (const bool half : {false, true}) {
                StepPlanJob job{{ranks}, stage, 1, 0, 0};
                job.half = half;
                const StepPlan plan = job.plans(model, layout).front();
                const int64_t shard = numel / (stage >= 1 ? ranks : 1);
                CAPTURE(ranks, stage, half);
                CHECK(step_plan_held(plan, BufferKind::kMoments) == 8 * shard);
                CHECK(step_plan_held(plan, BufferKind::kMaster) == (half ? 4 * shard : 0));
                CHECK(step_plan_held(plan, BufferKind::kParameters) ==
                      (half ? 2 : 4) * (stage == 3 ? numel / ranks : numel));
                // Two buckets in turn, each followed by a flag and its padding.
                CHECK(step_plan_held(plan, BufferKind::kGradients) ==
                      (stage >= 2 ? 2 * (65536 + 16) * 4 : 4 * numel));
            }
        }
    }
}

TEST_CASE("what a step sends between hosts is what the formulas say") {
    const ModelInfo model = four_layers();
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, true, 0, 64});
    const int64_t numel = 4 * 65536;
    for (const int hosts : {2, 4, 8}) {
        for (int stage = 0; stage <= 3; ++stage) {
            const std::vector<int> nodes(static_cast<size_t>(hosts), 1);
            int64_t sent = 0;
            for (const StepPlan& plan : StepPlanJob{nodes, stage, 1, 0, 0}.plans(model, layout))
                sent += plan.sent().value;
            // Over all hosts together, reduce-scatter and all-gather each send H - 1 times the
            // elements. Stage 3 gathers for forward and, except for the last layer, again for
            // backward. 4 buckets have 16 flags each, which every host needs.
            const int64_t volume = numel * 4 * (hosts - 1);
            const int64_t flags = 4 * 16 * 4 * (hosts - 1) * (stage == 0 ? 2 : hosts);
            const int64_t kept = stage == 3 ? 65536 * 4 * (hosts - 1) : 0;
            CAPTURE(hosts, stage);
            CHECK(sent == (stage == 3 ? 3 : 2) * volume + flags - kept);
        }
    }
}

TEST_CASE(
    "a host that keeps what it gathers gathers each bucket once a step, in a buffer of its own") {
    const ModelInfo model = four_layers();
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, true, 0, 64});
    const auto gathers_of = [](const StepPlan& plan) {
        std::map<int, int> gathers;
        for (const Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kGather) ++gathers[instruction.bucket];
        return gathers;
    };
    for (const int64_t accumulation : {1, 3}) {
        for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1, 1}, {2, 2}}) {
            for (const int64_t groups : {0, 2}) {
                StepPlanJob job{nodes, 3, accumulation, groups, 0};
                int64_t again = 0;
                for (const StepPlan& plan : job.plans(model, layout)) again += plan.sent().value;
                job.wire.host_copy = true;
                int64_t once = 0;
                for (const StepPlan& plan : job.plans(model, layout)) {
                    CAPTURE(nodes.size(), accumulation, groups, plan.rank);
                    const std::map<int, int> gathers = gathers_of(plan);
                    CHECK(gathers.size() == layout.buckets.size());
                    for (const auto& [bucket, times] : gathers) CHECK(times == 1);
                    CHECK(plan.gather_buffer_numel.size() == layout.buckets.size());
                    CHECK(step_plan_held(plan, BufferKind::kStaging) == layout.numel * 4);
                    CHECK(check_plan(plan).empty());
                    once += plan.sent().value;
                }
                const int64_t numel = 4 * 65536;
                const int64_t hosts = std::ssize(nodes);
                // Over all ranks together, if each rank counts its host's bytes: gradients in each
                // micro step, parameters once.
                const int64_t flags = 4 * 16 * 4 * hosts * (hosts - 1) * accumulation;
                const int64_t volume = numel * 4 * (hosts - 1);
                CHECK(once == nodes.front() * (volume * (accumulation + 1) + flags));
                CHECK(again > once);
            }
        }
    }
}

TEST_CASE("packed values are counted by their blocks, and their errors as memory") {
    const ModelInfo model = four_layers();
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, true, 0, 64});
    StepPlanJob job{{1, 1}, 3, 1, 0, 0};
    const auto sent_of = [&](TrafficKind kind) {
        int64_t sent = 0;
        for (const StepPlan& plan : job.plans(model, layout))
            sent += plan.sent_by_kind()[static_cast<size_t>(kind)].value;
        return sent;
    };
    const int64_t exact_gather = sent_of(TrafficKind::kGather);
    const int64_t flags = 4 * 16 * 4 * 2;
    const int64_t exact_reduce = sent_of(TrafficKind::kReduce) - flags;
    job.wire = {
        .parameters = WirePacking::kInt8, .gradients = WirePacking::kInt4, .error_feedback = true};
    // A shard of 65536 / 2 elements is 128 blocks of 256 with a scale of 4 bytes each.
    CHECK(sent_of(TrafficKind::kGather) * 4 * 256 == exact_gather * 260);
    CHECK((sent_of(TrafficKind::kReduce) - flags) * 4 * 256 == exact_reduce * 132);
    const StepPlan first = job.plans(model, layout).front();
    job.wire.error_feedback = false;
    const StepPlan plain = job.plans(model, layout).front();
    CHECK(step_plan_held(first, BufferKind::kGradients) -
              step_plan_held(plain, BufferKind::kGradients) ==
          4 * 65536 / 2 * 4);
    // On one host nothing is packed.
    job.nodes = {2};
    CHECK(job.plans(model, layout).front().sent().value == 0);
}

TEST_CASE("each bucket is reduced once a step, or once a micro step when asked") {
    const ModelInfo model = layered_model(5);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    StepPlanOptions options;
    options.accumulation_steps = 3;
    const int buckets = static_cast<int>(layout.buckets.size());
    CHECK(step_plan_count(make_step_plan(model, layout, options), Op::kReduce) == buckets);
    options.reduce_each_micro_step = true;
    CHECK(step_plan_count(make_step_plan(model, layout, options), Op::kReduce) == 3 * buckets);
    CHECK(step_plan_count(make_step_plan(model, layout, options), Op::kUpdate) == buckets);
}

TEST_CASE("recompute trades activations for work and never loses a segment") {
    const ModelInfo model = layered_model(8);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    StepPlanOptions options;
    const StepPlan kept = make_step_plan(model, layout, options);
    options.recompute_groups = 4;
    const StepPlan again = make_step_plan(model, layout, options);
    CHECK(step_plan_count(kept, Op::kRecompute) == 0);
    CHECK(step_plan_count(again, Op::kRecompute) == 8);
    CHECK(peak_by_tier(again)[0].peak < peak_by_tier(kept)[0].peak);
    // The plan keeps all 8 activations (5000 + s each) and the 9 values alive between them, at the
    // start of backward.
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
        CHECK_THAT(join(check_plan(plan), "; "), Catch::Contains("their order is not defined"));
    }
    SECTION("a use after its release") {
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kBackward && instruction.segment == 1) {
                plan.instructions.push_back(instruction);
                break;
            }
        CHECK_THAT(join(check_plan(plan), "; "), Catch::Contains("after its release"));
    }
    SECTION("a buffer that is never freed") {
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kBackward) instruction.frees.clear();
        CHECK_THAT(join(check_plan(plan), "; "), Catch::Contains("never freed"));
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
                   Catch::Contains("sums a bucket that is not posted"));
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
        CHECK_THAT(join(check_plans(plans), "; "), Catch::Contains("differs"));
    }
    SECTION("a rank that never posts a bucket") {
        StepPlan other = sound;
        other.rank = 1;
        for (Instruction& instruction : other.instructions)
            if (instruction.op == Op::kPost) instruction.op = Op::kLoad;
        const std::vector<StepPlan> plans = {sound, other};
        CHECK_THAT(join(check_plans(plans), "; "), Catch::Contains("never gets past"));
    }
}

TEST_CASE("the checker finds a gathered bucket that is read where it is not") {
    const ModelInfo model = layered_model(4);
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, true, 0, 64});
    const StepPlan sound = StepPlanJob{{1, 1}, 3, 2, 0, 0}.plans(model, layout).front();
    REQUIRE(check_plan(sound).empty());
    REQUIRE(sound.gather_buffer_numel.size() >= 2);
    StepPlan plan = sound;
    const auto first_of = [&](Op op) {
        for (size_t i = 0; i < plan.instructions.size(); ++i)
            if (plan.instructions[i].op == op) return static_cast<std::ptrdiff_t>(i);
        return std::ptrdiff_t{-1};
    };
    const auto problems = [&] { return join(check_plan(plan), "; "); };
    const auto begin = plan.instructions.begin();

    SECTION("a release before the last reading") {
        const auto release = first_of(Op::kRelease);
        REQUIRE(plan.instructions[static_cast<size_t>(release) - 1].op == Op::kForward);
        std::swap(begin[release], begin[release - 1]);
        derive_waits(plan);  // the plan is sound in all else
        CHECK_THAT(problems(), Catch::Contains("reads a bucket that is not gathered"));
    }
    SECTION("a gather after the first reading") {
        const auto gather = first_of(Op::kGather);
        const auto forward = first_of(Op::kForward);
        REQUIRE(gather < forward);
        std::rotate(begin + gather, begin + gather + 1, begin + forward + 1);
        derive_waits(plan);
        CHECK_THAT(problems(), Catch::Contains("reads a bucket that is not gathered"));
    }
    SECTION("another bucket in the buffer that is read") {
        const auto gather = first_of(Op::kGather);
        for (Instruction& instruction : plan.instructions)
            for (int& read : instruction.reads)
                if (read == begin[gather].writes.front()) ++read;  // the next gather buffer
        derive_waits(plan);
        CHECK_THAT(problems(), Catch::Contains("reads the wrong buffer"));
    }
    SECTION("a release that is missing") {
        plan.instructions.erase(begin + first_of(Op::kRelease));
        derive_waits(plan);
        CHECK_THAT(problems(),
                   Catch::Contains("not released") || Catch::Contains("never released"));
    }
}

TEST_CASE("a trainable parameter behind a detach is frozen, and holds up no other's update") {
    ModelInfo model = layered_model(4);
    model.segments[0].backward = false;  // detached output; parameter 0 is tied to segment 3
    for (const bool frozen : {false, true}) {
        const FlatLayout layout = make_flat_layout(model, {1 << 20, 1 << 20, frozen});
        for (const int parameter : {1, 2, 3}) {
            const int slice = layout.slice_of(parameter);
            CHECK((slice >= 0) == frozen);
            if (slice >= 0) CHECK(slice >= layout.trained_slices);
        }
        const ParameterSlice& tied = layout.slices[layout.slice_of(0)];
        CHECK(tied.first_segment == 3);
        CHECK(tied.last_segment == 3);
        REQUIRE(layout.trained_buckets == 1);
        CHECK(layout.buckets[0].ready_segment == 1);
    }
    const FlatLayout layout = make_flat_layout(model, {1 << 20, 1 << 20, true});
    for (const std::vector<int>& nodes : std::vector<std::vector<int>>{{1}, {3}, {2, 1}})
        for (int stage = 0; stage <= 3; ++stage)
            for (const int flags : {0, 1}) {
                const std::vector<StepPlan> plans =
                    StepPlanJob{nodes, stage, 2, 0, flags}.plans(model, layout);
                CAPTURE(nodes.size(), stage, flags);
                CHECK(step_plan_count(plans[0], Op::kUpdate) == 1);
                CHECK(join(check_plans(plans), "; ") == "");
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
                    ++seen[slice.parameter];
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
