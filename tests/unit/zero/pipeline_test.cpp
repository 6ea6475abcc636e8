// Pipelines of stages must train with the bits of one rank: with every schedule, ZeRO stage and
// number of stages.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <array>
#include <thread>

#include "plan/pipeline/stage_model.h"
#include "support/catch.h"
#include "support/every_nth.h"
#include "training_world.h"

namespace dslaunch {

using namespace config;
using namespace graph;
using namespace plan;
using namespace runtime;
using namespace zero;
namespace {

using testing::RankOutcome;
using testing::TrainedModel;
using testing::TrainingCase;
using testing::TrainingSetup;

struct PipelineCase {
    TrainingCase job;  // with the node_sizes of one stage
    int stages = 2;
    ScheduleKind schedule = ScheduleKind::k1F1B;
    int chunks = 1;

    [[nodiscard]] PipelineShape shape() const {
        return {stages, chunks, static_cast<int>(job.accumulation)};
    }
};

// Divides segments evenly among parts.
std::vector<plan::SegmentRange> parts_of_model(int segments, int parts) {
    std::vector<plan::SegmentRange> made;
    for (int part = 0; part < parts; ++part)
        made.push_back({segments * part / parts, segments * (part + 1) / parts});
    return made;
}

std::vector<TiedParameter> ties_of(const ModelInfo& model,
                                   const std::vector<std::vector<plan::SegmentRange>>& stages) {
    std::vector<TiedParameter> tied;
    for (int p = 0; p < std::ssize(model.parameters); ++p) {
        TiedParameter one{p, {}};
        for (int stage = 0; stage < std::ssize(stages); ++stage)
            if (stage_model(model, stages[stage]).trained()[p]) one.stages.push_back(stage);
        if (one.stages.size() > 1) tied.push_back(one);
    }
    return trained_ties(model, stages, tied);
}

// One stage's part of a job.
struct StageSetup {
    TrainingSetup setup;
    StageWork work;

    StageSetup(const PipelineCase& pipeline, int stage) : setup(pipeline.job) {
        const TrainingCase& job = pipeline.job;
        const ModelInfo whole = setup.info;
        const PipelineSchedule schedule = make_schedule(pipeline.schedule, pipeline.shape());
        const std::vector<plan::SegmentRange> parts =
            parts_of_model(static_cast<int>(whole.segments.size()), schedule.shape.parts());
        const auto stages = ranges_of_stages(pipeline.schedule, schedule.shape, parts);
        work = stage_work(whole, parts, schedule, stage);
        work.ties = ties_of_stage(ties_of(whole, stages), stage);
        setup.info = stage_model(whole, stages[stage]);
        FlatLayoutOptions options{job.bucket_numel_max, job.bucket_numel_min, true,
                                  job.persistent_numel_max, job.block_numel};
        for (const TiedParameter& tie : work.ties) options.tied.push_back(tie.parameter);
        options.part_begins = part_begins(work);
        setup.layout = make_flat_layout(setup.info, options);
        setup.partition = make_partition(setup.layout, setup.info, job.shard, job.world_size());
    }
};

// All ranks, as threads. The ranks of each stage are a world, and all ranks are one too.
class PipelineWorld {
  public:
    explicit PipelineWorld(const PipelineCase& pipeline) : pipeline_(pipeline) {
        const TrainingCase& job = pipeline.job;
        all_.emplace(testing::InProcessOptions{{pipeline.stages * job.world_size()}, kLimit},
                     [](ArenaLayout&) {});
        for (int stage = 0; stage < pipeline.stages; ++stage) {
            slices_.emplace_back();
            const StageSetup setup(pipeline, stage);
            stages_.push_back(std::make_unique<testing::InProcessWorld>(
                testing::InProcessOptions{job.node_sizes, kLimit}, [&](ArenaLayout& arena) {
                    std::vector<ZeroSlices>& of_nodes = slices_.back();
                    const Topology topology{job.node_sizes, static_cast<int>(of_nodes.size()), 0};
                    const testing::Planned planned(job, setup.setup, topology, setup.work);
                    of_nodes.push_back(ZeroState::add_slices(planned.place(setup.setup),
                                                             job.precision.compute, arena));
                }));
        }
        for (int rank = 0; rank < job.world_size(); ++rank)
            hubs_.push_back(std::make_unique<testing::InProcessHub>(kLimit));
    }

    // Returns the parameters and metrics of all stages together, as one rank would have them.
    RankOutcome train() {
        const int ranks = pipeline_.job.world_size();
        std::vector<RankOutcome> outcomes(static_cast<size_t>(ranks * pipeline_.stages));
        std::vector<std::string> errors(outcomes.size());
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < std::ssize(outcomes); ++i)
                threads.emplace_back([&, i] {
                    try {
                        outcomes[i] = train_rank(i / ranks, i % ranks);
                    } catch (const std::exception& error) {
                        errors[i] = error.what();
                        for (const auto& hub : hubs_) hub->link_of(0)->abort(error.what());
                    }
                });
        }
        for (const std::string& error : errors)
            if (!error.empty()) throw std::runtime_error(error);
        RankOutcome together = outcomes.front();
        for (const RankOutcome& outcome : outcomes)
            for (const auto& [name, tensor] : outcome.parameters)
                together.parameters[name] = tensor;
        return together;
    }

  private:
    static constexpr auto kLimit = std::chrono::seconds(60);

    RankOutcome train_rank(int stage, int rank) {
        const TrainingCase& job = pipeline_.job;
        StageSetup own(pipeline_, stage);
        testing::InProcessRank world = all_->enter(stage * job.world_size() + rank);
        testing::InProcessRank self = stages_[stage]->enter(rank);
        const Topology& topology = self.collectives->topology();
        const testing::Planned planned(job, own.setup, topology, own.work);
        const std::unique_ptr<Link> link = hubs_[rank]->link_of(stage);
        const StageLink stages(
            std::vector<Link*>(static_cast<size_t>(pipeline_.stages), link.get()), stage);
        ZeroState state(
            own.setup.model(), planned.place(own.setup), slices_[stage][topology.node_rank],
            *self.arena, *self.group, *self.collectives,
            {job.optimizer, job.clipping, job.precision.compute, job.precision.skip_nonfinite_steps,
             nullptr,
             PipelineScope{world.collectives.get(), counted_elsewhere(own.work.ties, stage)}});
        testing::TrainPlace place{&topology,
                                  {&stages, nullptr, 0, own.work.parts,
                                   stages_of_buckets(own.setup.layout, own.work.ties)},
                                  own.work};
        place.groups = {self.collectives.get()};
        RankOutcome outcome = testing::train_with(job, own.setup, planned.plan, state,
                                                  *world.collectives, {}, nullptr, {}, &place);
        testing::bring_into_model(state, own.setup.model());
        testing::collect_tensors(own.setup, state, outcome);
        std::erase_if(outcome.parameters,
                      [&](const auto& item) { return !outcome.updates.contains(item.first); });
        world.collectives->barrier();
        return outcome;
    }

    PipelineCase pipeline_;
    std::optional<testing::InProcessWorld> all_;
    std::vector<std::unique_ptr<testing::InProcessWorld>> stages_;
    std::vector<std::vector<ZeroSlices>> slices_;               // slices by stage and host
    std::vector<std::unique_ptr<testing::InProcessHub>> hubs_;  // hubs by place in a stage
};

TrainingCase pipeline_job() {
    TrainingCase job;
    job.accumulation = 4;
    job.micro_step = true;
    job.optimizer.lr = 0.01;
    job.bucket_numel_max = 200;
    job.steps = 3;
    job.segments = 5;
    return job;
}

void check_as_one(const PipelineCase& pipeline) {
    INFO(pipeline.stages << " stages, " << schedule_name(pipeline.schedule) << " of "
                         << pipeline.chunks << " chunks, ZeRO " << pipeline.job.stage << ", "
                         << pipeline.job.world_size() << " ranks of "
                         << pipeline.job.node_sizes.size() << " hosts, "
                         << pipeline.job.accumulation << " micro steps, recompute "
                         << pipeline.job.recompute_groups);
    const RankOutcome one = testing::train_world(pipeline.job).front();
    const RankOutcome together = PipelineWorld(pipeline).train();
    CHECK(together.losses() == one.losses());
    CHECK(together.norm == one.norm);
    for (const auto& [name, tensor] : one.parameters) {
        INFO(name);
        REQUIRE(together.parameters.contains(name));
        CHECK(at::equal(together.parameters.at(name), tensor));
    }
}

}  // namespace

TEST_CASE("a pipeline trains bit for bit as one rank does", "[matrix]") {
    test::EveryNth cases(5);
    for (const ScheduleKind schedule :
         {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1})
        for (int stages = 1; stages <= 4; ++stages)
            for (int stage = 0; stage <= 3; ++stage)
                for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {1, 1}}) {
                    if (!cases.takes_next()) continue;
                    PipelineCase pipeline{pipeline_job(), stages, schedule};
                    pipeline.job.node_sizes = sizes;
                    pipeline.job.stage = stage;
                    check_as_one(pipeline);
                }
}

namespace {

struct Chunked {
    ScheduleKind schedule = ScheduleKind::kInterleaved;
    int chunks = 2;
};
constexpr std::array kChunked = {Chunked{ScheduleKind::kInterleaved, 2},
                                 Chunked{ScheduleKind::kInterleaved, 3},
                                 Chunked{ScheduleKind::kZeroBubbleV, 2}};

// Six layers and the loss, which can be cut into twelve parts.
constexpr const char* kDeepText =
    "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
    "    h = torch.tanh(torch.matmul(x * self.b, self.w0))\n"
    "    h = torch.tanh(torch.matmul(h, self.w1)) + h\n"
    "    h = torch.tanh(torch.matmul(h, self.w2)) * x[0, 0]\n"
    "    h = torch.tanh(torch.matmul(h, self.w3)) + h\n"
    "    h = torch.tanh(torch.matmul(h, self.w4)) + h\n"
    "    h = torch.tanh(torch.matmul(h, self.w5))\n"
    "    z = torch.matmul(h, self.w6)\n"
    "    return ((z - y) * (z - y)).mean() + BIAS\n";

// Returns a model of kDeepText. SHARED: its first and last node read the same parameter. In a V,
// both are in one stage.
TrainedModel deep_model(bool shared) {
    std::string text = kDeepText;
    text.replace(text.find("BIAS"), 4, shared ? "self.b" : "self.c");
    test::NamedTensors parameters{{"b", testing::wave({}, 0.2) * 1.5},
                                  {"w0", testing::wave({7, 20}, 0.1) * 0.5},
                                  {"w6", testing::wave({20, 3}, 0.5) * 0.5}};
    if (!shared) parameters.emplace_back("c", testing::wave({}, 0.7) * 0.1);
    for (int layer = 1; layer <= 5; ++layer)
        parameters.emplace_back("w" + std::to_string(layer),
                                testing::wave({20, 20}, 0.3 * layer) * 0.4);
    return {
        test::script_model(text, parameters), {}, [](const SegmentedModel&, int64_t micro_batch) {
            return testing::small_batch(micro_batch);
        }};
}

PipelineCase deep_case(const Chunked& chunked, int stages, bool shared = false) {
    PipelineCase pipeline{pipeline_job(), stages, chunked.schedule, chunked.chunks};
    pipeline.job.segments = 12;
    pipeline.job.make_model = [shared] { return deep_model(shared); };
    return pipeline;
}

}  // namespace

TEST_CASE("stages with several parts train bit for bit as one rank does", "[matrix]") {
    test::EveryNth cases(5);
    for (const Chunked& chunked : kChunked)
        for (int stages = 2; stages <= 4; ++stages)
            for (int stage = 0; stage <= 3; ++stage)
                for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {1, 1}}) {
                    if (!cases.takes_next()) continue;
                    PipelineCase pipeline = deep_case(chunked, stages);
                    pipeline.job.node_sizes = sizes;
                    pipeline.job.stage = stage;
                    check_as_one(pipeline);
                }
}

TEST_CASE("stages with several parts clip, recompute and take any number of micro steps",
          "[matrix]") {
    test::EveryNth cases(5);
    for (const Chunked& chunked : kChunked)
        for (const int64_t micro_steps : {1, 2, 3, 7})
            for (const int64_t recompute : {0, 1})
                for (const int stages : {1, 2, 3}) {
                    if (!cases.takes_next()) continue;
                    PipelineCase pipeline = deep_case(chunked, stages);
                    pipeline.job.accumulation = micro_steps;
                    pipeline.job.recompute_groups = recompute;
                    pipeline.job.clipping = micro_steps % 2 == 0 ? 0.05 : 0.0;
                    pipeline.job.stage = micro_steps == 7 ? 3 : 1;
                    check_as_one(pipeline);
                }
}

TEST_CASE("a parameter of the first and the last part is one stage's in a V, bit for bit",
          "[matrix]") {
    test::EveryNth cases(5);
    for (int stages = 1; stages <= 4; ++stages)
        for (int stage = 0; stage <= 3; ++stage)
            for (const int64_t micro_steps : {1, 4, 7})
                for (const bool micro_step : {true, false}) {
                    if ((!micro_step && stage > 1) || !cases.takes_next()) continue;
                    PipelineCase pipeline =
                        deep_case({ScheduleKind::kZeroBubbleV, 2}, stages, true);
                    pipeline.job.stage = stage;
                    pipeline.job.accumulation = micro_steps;
                    pipeline.job.micro_step = micro_step;
                    pipeline.job.node_sizes = {stages == 3 ? 2 : 1};
                    const StageSetup first(pipeline, 0);
                    REQUIRE(first.work.ties.empty());
                    const int slice = first.setup.layout.slice_of(0);
                    REQUIRE(first.setup.info.parameters[0].name == "b");
                    REQUIRE(first.setup.layout.slices[slice].over_parts);
                    check_as_one(pipeline);
                }
}

TEST_CASE("a pipeline clips, recomputes and takes any number of micro steps", "[matrix]") {
    test::EveryNth cases(5);
    for (const int64_t micro_steps : {1, 2, 3, 7})
        for (const int64_t recompute : {0, 1, 2})
            for (const double clipping : {0.0, 0.05}) {
                if (!cases.takes_next()) continue;
                PipelineCase pipeline{
                    pipeline_job(), 3,
                    recompute == 2 ? ScheduleKind::kZeroBubbleH1 : ScheduleKind::k1F1B};
                pipeline.job.accumulation = micro_steps;
                pipeline.job.recompute_groups = recompute;
                pipeline.job.clipping = clipping;
                pipeline.job.stage = 1;
                check_as_one(pipeline);
            }
}

namespace {

// `w` is read by the first segment and by the last one, `g` in the middle too.
constexpr const char* kTiedText =
    "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
    "    h = torch.tanh(torch.matmul(x, self.w)) * self.g\n"
    "    h = torch.tanh(torch.matmul(h, self.v)) * self.g\n"
    "    h = torch.tanh(torch.matmul(h, self.u))\n"
    "    z = torch.matmul(h, self.w.t()) * self.g\n"
    "    return ((z[:, :3] - y) * (z[:, :3] - y)).mean()\n";

TrainedModel tied_model() {
    return {test::script_model(kTiedText, {{"w", testing::wave({7, 20}, 0.1) * 0.5},
                                           {"v", testing::wave({20, 20}, 0.2) * 0.4},
                                           {"u", testing::wave({20, 20}, 0.3) * 0.4},
                                           {"g", at::ones({1}) * 0.9}}),
            {},
            [](const SegmentedModel&, int64_t micro_batch) {
                return testing::small_batch(micro_batch);
            }};
}

PipelineCase tied_case(int stages, std::vector<int> sizes, int stage, int64_t micro_steps) {
    PipelineCase pipeline{pipeline_job(), stages};
    pipeline.job.make_model = tied_model;
    pipeline.job.node_sizes = std::move(sizes);
    pipeline.job.stage = stage;
    pipeline.job.accumulation = micro_steps;
    return pipeline;
}

}  // namespace

TEST_CASE("a parameter that several stages read is trained as one, bit for bit", "[matrix]") {
    test::EveryNth cases(5);
    for (int stages = 2; stages <= 4; ++stages)
        for (int stage = 0; stage <= 3; ++stage)
            for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {1, 1}}) {
                if (!cases.takes_next()) continue;
                PipelineCase pipeline = tied_case(stages, sizes, stage, 1);
                pipeline.job.clipping = stages == 3 ? 0.05 : 0.0;
                check_as_one(pipeline);
            }
}

TEST_CASE("a parameter that several stages read has the gradients of all micro steps") {
    // Each gradient is a sum of at most 3 x 4 terms, below 1 in magnitude, in another order: 12 x
    // 2^-24 = 7.2e-7. Three steps of SGD at 0.01 move a weight by 3 x 0.01 of that, 2.2e-8. Each
    // step adds half a unit in the last place of weights below 1, 3 x 3e-8.
    for (const ScheduleKind schedule : {ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1})
        for (int stage = 0; stage <= 3; ++stage)
            for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}}) {
                PipelineCase pipeline = tied_case(3, sizes, stage, 4);
                pipeline.schedule = schedule;
                pipeline.job.optimizer = {};
                pipeline.job.optimizer.kind = OptimizerKind::kSgd;
                pipeline.job.optimizer.lr = 0.01;
                INFO("ZeRO " << stage << ", " << sizes.size() << " hosts");
                const RankOutcome one = testing::train_world(pipeline.job).front();
                const RankOutcome together = PipelineWorld(pipeline).train();
                for (const auto& [name, tensor] : one.parameters) {
                    const at::Tensor difference = together.parameters.at(name) - tensor;
                    CHECK(difference.abs().max().item<double>() < 1.2e-7);
                }
            }
}

TEST_CASE("stages behind which nothing wants gradients are told so") {
    // `w1` is never trained: its result is detached, in the same segment or after a cut.
    constexpr const char* kDetachText =
        "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.matmul(x, self.w1) + self.b1)\n"
        "    k = torch.relu(h).detach()\n"
        "    k = torch.tanh(torch.matmul(k * self.gain, self.w2) + self.extra[:17])\n"
        "    z = torch.matmul(k, self.w3)\n"
        "    return ((z - y) * (z - y)).mean()\n";
    for (int stages = 2; stages <= 4; ++stages)
        for (const ScheduleKind schedule : {ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1}) {
            PipelineCase pipeline{pipeline_job(), stages, schedule};
            pipeline.job.segments = 6;
            pipeline.job.make_model = [] {
                return TrainedModel{test::script_model(kDetachText, testing::initial_parameters()),
                                    {},
                                    [](const SegmentedModel&, int64_t micro_batch) {
                                        return testing::small_batch(micro_batch);
                                    }};
            };
            check_as_one(pipeline);
        }
}

}  // namespace dslaunch
