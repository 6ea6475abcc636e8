// Costs of meshes: closed forms for layers of equal cost, and the plans that a run would have.
#include "plan/choose/mesh_cost.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "mesh_models.h"
#include "plan/pipeline/stage_model.h"
#include "plan/step/plan_check.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

using test::layered_job;

namespace {

constexpr int64_t kGradients = 4 * test::kLayerNumel;  // bytes of a layer

const AxisTraffic& traffic(const MeshCost& cost, MeshAxis axis) {
    return cost.traffic[static_cast<size_t>(axis)];
}

// Returns the bytes that the plan of each stage's fullest rank keeps in memory.
std::vector<int64_t> planned_bytes(const MeshRequest& request, const MeshChoice& choice,
                                   const std::vector<SegmentRange>& parts) {
    const PipelineSchedule schedule = make_schedule(
        choice.schedule, {choice.sizes.pipeline, choice.chunks, choice.micro_batches});
    const auto ranges = ranges_of_stages(choice.schedule, schedule.shape, parts);
    std::vector<int64_t> bytes;
    for (size_t stage = 0; stage < ranges.size(); ++stage) {
        const ModelInfo part = stage_model(request.model, ranges[stage]);
        const FlatLayout layout = make_flat_layout(part, request.layout);
        const Partition partition = make_partition(layout, part, ShardBy::kFlat, choice.sizes.data);
        int64_t most = 0;
        for (int rank = 0; rank < choice.sizes.data; ++rank) {
            StepPlanOptions options{rank,
                                    choice.sizes.data,
                                    rank,
                                    choice.sizes.data,
                                    choice.micro_batches,
                                    choice.recompute ? std::ssize(part.segments) : 0};
            options.stage = choice.zero_stage;
            options.partition = &partition;
            options.clip = request.options.clip;
            if (parts.size() > 1)
                options.stage_work =
                    stage_work(request.model, parts, schedule, static_cast<int>(stage));
            const std::array<TierPeak, kTiers> peaks =
                peak_by_tier(make_step_plan(part, layout, options));
            most = std::max(most, peaks[0].peak.value + peaks[1].peak.value);
        }
        bytes.push_back(most);
    }
    return bytes;
}

}  // namespace

TEST_CASE("a pipeline of equal stages takes what its formula says, and its updates") {
    MeshRequest request = layered_job(8, {4});
    request.rates.update_numel_per_s = static_cast<double>(test::kLayerNumel);
    const MeshCost cost = mesh_cost(request, {{1, 1, 1, 0, 4}, ScheduleKind::k1F1B, 1, 8});
    CHECK(cost.pipeline_s == Approx((8 + 3) * 2 * 3));
    CHECK(cost.run.idle_share == Approx(3.0 / 11));
    CHECK(cost.update_s == Approx(2));
    CHECK(cost.step_s == Approx(66 + 2));
    CHECK(cost.sums_s == 0);
}

TEST_CASE("data-parallel ranks add up gradients inside hosts first, then between them") {
    const MeshRequest request = layered_job(3, {2, 2});
    const auto shard = [&](int stage, int micro_batches) {
        const MeshCost cost =
            mesh_cost(request, {{1, 1, 4, 0, 1}, ScheduleKind::k1F1B, 1, micro_batches, stage});
        const AxisTraffic& found = traffic(cost, MeshAxis::kShard);
        return std::pair(found.inside.value, found.between.value);
    };
    constexpr int64_t kAll = 3 * kGradients;
    CHECK(shard(0, 3) == std::pair(2 * 2 * kAll, 2 * 1 * kAll));
    // Gradients go to owners, and the new parameters to the other host.
    CHECK(shard(1, 3) == std::pair(2 * kAll, kAll + kAll));
    CHECK(shard(2, 3) == std::pair(3 * 2 * kAll, 3 * kAll + kAll));
    // Parameters are gathered forward and backward in each of three micro batches.
    CHECK(shard(3, 3) == std::pair(3 * 2 * kAll, 3 * kAll + 6 * kAll));
}

TEST_CASE("sums that are longer than a backward show at the end of a step") {
    MeshRequest request = layered_job(2, {1, 1});
    const MeshChoice choice{{1, 1, 2, 0, 1}, ScheduleKind::k1F1B, 1, 2, 0};
    // A rank receives 2 (n - 1) / n = all of the gradients.
    const double bytes = 2 * kGradients;
    request.rates.link_bytes_per_s = bytes / 3;  // three seconds, hidden by a backward of four
    CHECK(mesh_cost(request, choice).step_s == Approx(12));
    request.rates.link_bytes_per_s = bytes / 7;
    CHECK(mesh_cost(request, choice).step_s == Approx(12 + 7 - 4));
    request.options.clip = true;  // all gradients must be there before the update
    CHECK(mesh_cost(request, choice).step_s == Approx(12 + 7));
}

TEST_CASE("groups that cross hosts share their link") {
    // Each host has two tensor ranks. Each of these has a data group over both hosts.
    MeshRequest request = layered_job(2, {2, 2});
    request.tensor = TensorCosts{{true, true}, {}, {}};
    request.options.clip = true;
    request.rates.link_bytes_per_s = static_cast<double>(kGradients);
    const MeshCost cost = mesh_cost(request, {{2, 1, 2, 0, 1}, ScheduleKind::k1F1B, 1, 1, 0});
    // Each group sums half of the gradients, all of it twice over one half of the hosts.
    CHECK(cost.sums_s == Approx(2 * 2 * (2 / 2.0) / 2));
    CHECK(traffic(cost, MeshAxis::kShard).between.value == 2 * 2 * kGradients);
}

TEST_CASE("stages on two hosts send outputs and their gradients between them") {
    MeshRequest request = layered_job(4, {1, 1});
    const MeshChoice choice{{1, 1, 1, 0, 2}, ScheduleKind::k1F1B, 1, 5};
    const MeshCost cost = mesh_cost(request, choice);
    CHECK(traffic(cost, MeshAxis::kPipeline).between.value == 2 * 5 * test::kLayerOutputs);
    CHECK(traffic(cost, MeshAxis::kPipeline).inside.value == 0);
    request.node_sizes = {2};
    CHECK(traffic(mesh_cost(request, choice), MeshAxis::kPipeline).inside.value ==
          2 * 5 * test::kLayerOutputs);
}

TEST_CASE("what crosses hosts is counted from where the mesh puts the stages") {
    MeshRequest request = layered_job(4, {4});
    MeshChoice choice{{1, 1, 1, 0, 4}, ScheduleKind::k1F1B, 1, 8};
    const auto between = [&](MeshAxis axis) {
        return traffic(mesh_cost(request, choice), axis).between.value;
    };
    // Each copy sends an output and its gradient at each of three cuts for each of 8 micro batches.
    constexpr int64_t kCopy = 2 * 8 * 3 * test::kLayerOutputs;
    CHECK(between(MeshAxis::kPipeline) == 0);
    // Each stage has 2 copies, each on a host of its own.
    choice.sizes.data = 2;
    request.node_sizes = {2, 2, 2, 2};
    CHECK(between(MeshAxis::kPipeline) == 2 * kCopy);
    CHECK(between(MeshAxis::kShard) == 0);
    // The 4 copies of each stage are on two of the 8 hosts, which have 2 ranks each. These two
    // hosts send the stage's sums both ways.
    choice.sizes.data = 4;
    request.node_sizes.assign(8, 2);
    CHECK(between(MeshAxis::kPipeline) == 4 * kCopy);
    CHECK(between(MeshAxis::kShard) == 4 * 2 * kGradients);
    // A frozen stage sends only outputs, and has no sums.
    request.model.segments[0].backward = false;
    request.model.parameters[0].trainable = false;
    CHECK(between(MeshAxis::kPipeline) == 4 * (kCopy - 8 * test::kLayerOutputs));
    CHECK(between(MeshAxis::kShard) == 3 * 2 * kGradients);
    // The transfer at the turn of a V stays within its stage.
    request = layered_job(4, {1, 1});
    choice = {{1, 1, 1, 0, 2}, ScheduleKind::kZeroBubbleV, 2, 8};
    CHECK(between(MeshAxis::kPipeline) == 2 * 8 * 2 * test::kLayerOutputs);
}

TEST_CASE("thousands of ranks are weighed at once") {
    const MeshRequest request = layered_job(64, std::vector<int>(2048, 8));
    const MeshCost cost = mesh_cost(request, {{1, 1, 256, 8, 64}, ScheduleKind::k1F1B, 1, 256});
    CHECK(traffic(cost, MeshAxis::kShard).between.value == 64 * 2 * 31 * kGradients);
    CHECK(traffic(cost, MeshAxis::kPipeline).between.value ==
          int64_t{256} * 63 * 512 * test::kLayerOutputs);
}

TEST_CASE("large buckets are counted whole") {
    for (const int zero : {2, 3})
        for (const int64_t layers : {3, 8, 100}) {
            MeshRequest request = layered_job(8, {2});
            request.layout.bucket_numel_max = layers * test::kLayerNumel;
            request.layout.bucket_numel_min = request.layout.bucket_numel_max;
            const MeshChoice choice{{1, 1, 2, 0, 1},    ScheduleKind::k1F1B, 1, 4, zero,
                                    /*recompute=*/false};
            const MeshCost cost = mesh_cost(request, choice);
            INFO("ZeRO " << zero << ", " << layers << " layers a bucket");
            CHECK(static_cast<double>(cost.stages[0].in_memory().value) ==
                  Approx(static_cast<double>(planned_bytes(request, choice, cost.parts)[0]))
                      .epsilon(0.05));
        }
}

TEST_CASE("tensor ranks share what is split, and wait for each other's sums") {
    MeshRequest request = layered_job(4, {2});
    request.tensor = TensorCosts{{true, true, true, false}, Bytes{1000}, Bytes{3000}};
    request.rates.host_bytes_per_s = 1000;
    const MeshCost cost = mesh_cost(request, {{2, 1, 1, 0, 1}, ScheduleKind::k1F1B, 1, 3});
    // A rank receives 2 (n - 1) / n of 4000 bytes in a micro batch: four seconds.
    CHECK(cost.pipeline_s == Approx(3 * (3 * 3 / 2.0 + 3 + 4)));
    CHECK(traffic(cost, MeshAxis::kTensor).inside.value == 3 * 2 * 4000);
    CHECK(cost.stages[0].parameters.value == 3 * kGradients / 2 + kGradients);
    // Moments are private, and twice as many as parameters.
    const MeshCost whole = mesh_cost(layered_job(4, {1}), {{1, 1, 1, 0, 1}});
    CHECK(whole.stages[0].parameters.value == 4 * kGradients);
    CHECK(whole.stages[0].own > cost.stages[0].own);
}

TEST_CASE("sequence ranks share positions, and exchange them around every segment") {
    MeshRequest request = layered_job(4, {2});
    const MeshCost cost = mesh_cost(request, {{1, 2, 1, 0, 1}, ScheduleKind::k1F1B, 1, 3});
    CHECK(cost.pipeline_s == Approx(3 * 4 * 3 / 2.0));
    // Four exchanges forward and four backward, which each send half of a rank's half to the other
    // rank; and the sum of all gradients.
    CHECK(traffic(cost, MeshAxis::kSequence).inside.value ==
          3 * 4 * 8 * test::kLayerOutputs / 2 + 2 * 4 * kGradients);
}

TEST_CASE("a rank holds what the plan of a run would have it hold") {
    for (const int stages : {1, 2, 4})
        for (const int data : {1, 2, 3})
            for (const int zero : {0, 1, 2, 3})
                for (const bool clip : {false, true})
                    for (const bool recompute : {false, true})
                        for (const ScheduleKind kind : kScheduleKinds) {
                            if (stages == 1 && kind != ScheduleKind::k1F1B) continue;
                            const bool several = kind == ScheduleKind::kInterleaved ||
                                                 kind == ScheduleKind::kZeroBubbleV;
                            INFO(stages << " stages, " << data << " copies, ZeRO " << zero
                                        << ", clip " << clip << ", recompute " << recompute << ", "
                                        << schedule_name(kind));
                            MeshRequest request = layered_job(16, {stages * data});
                            request.options.clip = clip;
                            const MeshChoice choice{
                                {1, 1, data, 0, stages}, kind, several ? 2 : 1, 4, zero, recompute};
                            const MeshCost cost = mesh_cost(request, choice);
                            const std::vector<int64_t> planned =
                                planned_bytes(request, choice, cost.parts);
                            for (size_t stage = 0; stage < planned.size(); ++stage) {
                                INFO("stage " << stage);
                                CHECK(static_cast<double>(cost.stages[stage].in_memory().value) ==
                                      Approx(static_cast<double>(planned[stage])).epsilon(0.05));
                            }
                        }
}

TEST_CASE("parameters lie once in a host's memory, the rest in each rank's") {
    MeshRequest request = layered_job(4, {2, 1});
    request.program = Bytes{1000};
    for (const int zero : {0, 3}) {
        const MeshCost cost =
            mesh_cost(request, {{1, 1, 3, 0, 1}, ScheduleKind::k1F1B, 1, 1, zero});
        const MeshMemory& rank = cost.stages[0];
        CHECK(cost.host ==
              (rank.own + rank.shared + Bytes{1000}) * 2 + rank.parameters * (zero == 0 ? 1 : 2));
    }
}

TEST_CASE("stages are cut so that no rank needs more than it has, or refused") {
    MeshRequest request = layered_job(8, {2});
    // The first layers are short: by time alone the first stage gets six of them.
    for (int s = 0; s < 5; ++s) request.times[s] = {0.1, 0.1, 0.1};
    const MeshChoice choice{{1, 1, 1, 0, 2}, ScheduleKind::k1F1B, 1, 4};
    const MeshCost free = mesh_cost(request, choice);
    CHECK(free.parts[0].end == 6);
    request.rank_memory_max = Bytes{6 * 4 * kGradients};
    CHECK(mesh_cost(request, choice).parts[0].end == 5);
    request.rank_memory_max = Bytes{1000};
    CHECK_THROWS_AS(mesh_cost(request, choice), Error);
}

}  // namespace dslaunch
