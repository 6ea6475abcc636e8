// Pipelines of stages that train as one rank does, bit for bit: every schedule, ZeRO stage and
// number of stages.
#include <thread>

#include "plan/stage_model.h"
#include "support/catch.h"
#include "training_world.h"

namespace dslaunch {
namespace {

using testing::RankOutcome;
using testing::TrainingCase;
using testing::TrainingSetup;

struct PipelineCase {
    TrainingCase job;  // node_sizes: of a stage's ranks
    int stages = 2;
    ScheduleKind schedule = ScheduleKind::k1F1B;
};

// Segments dealt out evenly.
std::vector<SegmentRange> spans_of(int segments, int stages) {
    std::vector<SegmentRange> spans;
    for (int s = 0; s < stages; ++s)
        spans.push_back({segments * s / stages, segments * (s + 1) / stages});
    return spans;
}

// The part of a job that is one stage's.
struct StageSetup {
    TrainingSetup setup;
    SegmentRange span;
    StageWork work;

    StageSetup(const PipelineCase& pipeline, int stage) : setup(pipeline.job) {
        const TrainingCase& job = pipeline.job;
        const ModelInfo whole = setup.info;
        const auto segments = static_cast<int>(whole.segments.size());
        span = spans_of(segments, pipeline.stages)[static_cast<size_t>(stage)];
        const PipelineSchedule schedule = make_schedule(
            pipeline.schedule, {pipeline.stages, 1, static_cast<int>(job.accumulation)});
        work = stage_work(whole, span, schedule.stages[static_cast<size_t>(stage)]);
        setup.info = stage_model(whole, span);
        setup.layout =
            make_flat_layout(setup.info, {job.bucket_numel_max, job.bucket_numel_min, true,
                                          job.persistent_numel_max, job.block_numel});
        setup.partition = make_partition(setup.layout, setup.info, job.shard, job.world_size());
    }
};

// All ranks as threads: stage by stage, each a world of its own, and a world of all.
class PipelineWorld {
  public:
    explicit PipelineWorld(const PipelineCase& pipeline) : pipeline_(pipeline) {
        const TrainingCase& job = pipeline.job;
        all_.emplace(InProcessOptions{{pipeline.stages * job.world_size()}, kLimit},
                     [](ArenaLayout&) {});
        for (int stage = 0; stage < pipeline.stages; ++stage) {
            slices_.emplace_back();
            const StageSetup setup(pipeline, stage);
            stages_.push_back(std::make_unique<InProcessWorld>(
                InProcessOptions{job.node_sizes, kLimit}, [&](ArenaLayout& arena) {
                    std::vector<ZeroSlices>& of_nodes = slices_.back();
                    const Topology topology{job.node_sizes, static_cast<int>(of_nodes.size()), 0};
                    const testing::Planned planned(job, setup.setup, topology, setup.work);
                    of_nodes.push_back(ZeroState::add_slices(planned.place(setup.setup),
                                                             job.precision.compute, arena));
                }));
        }
        for (int rank = 0; rank < job.world_size(); ++rank)
            hubs_.push_back(std::make_unique<InProcessHub>(kLimit));
    }

    // The parameters and metrics of all stages together, as one rank would have them.
    RankOutcome train() {
        const int ranks = pipeline_.job.world_size();
        std::vector<RankOutcome> outcomes(static_cast<size_t>(ranks * pipeline_.stages));
        std::vector<std::string> errors(outcomes.size());
        {
            std::vector<std::jthread> threads;
            for (int i = 0; i < std::ssize(outcomes); ++i)
                threads.emplace_back([&, i] {
                    try {
                        outcomes[static_cast<size_t>(i)] = train_rank(i / ranks, i % ranks);
                    } catch (const std::exception& error) {
                        errors[static_cast<size_t>(i)] = error.what();
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
        InProcessRank world = all_->enter(stage * job.world_size() + rank);
        InProcessRank self = stages_[static_cast<size_t>(stage)]->enter(rank);
        const Topology& topology = self.collectives->topology();
        const testing::Planned planned(job, own.setup, topology, own.work);
        const std::unique_ptr<Link> link = hubs_[static_cast<size_t>(rank)]->link_of(stage);
        const StageLink stages(*link, stage, pipeline_.stages);
        ZeroState state(
            own.setup.model(), planned.place(own.setup),
            slices_[static_cast<size_t>(stage)][static_cast<size_t>(topology.node_rank)],
            *self.arena, *self.group, *self.collectives,
            {job.optimizer, job.clipping, job.precision.compute, job.precision.skip_nonfinite_steps,
             1, nullptr, &stages});
        testing::TrainPlace place{&topology, {stage, pipeline_.stages, &stages}, own.span.begin};
        RankOutcome outcome = testing::train_with(job, own.setup, planned.plan, state,
                                                  *world.collectives, {}, nullptr, {}, &place);
        testing::bring_into_model(state, own.setup.model());
        testing::collect_tensors(own.setup, state.slice_steps(), outcome);
        std::erase_if(outcome.parameters,
                      [&](const auto& item) { return !outcome.updates.contains(item.first); });
        world.collectives->barrier();
        return outcome;
    }

    PipelineCase pipeline_;
    std::optional<InProcessWorld> all_;
    std::vector<std::unique_ptr<InProcessWorld>> stages_;
    std::vector<std::vector<ZeroSlices>> slices_;      // by stage and host
    std::vector<std::unique_ptr<InProcessHub>> hubs_;  // by place in a stage
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
    INFO(pipeline.stages << " stages, " << schedule_name(pipeline.schedule) << ", ZeRO "
                         << pipeline.job.stage << ", " << pipeline.job.world_size() << " ranks of "
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

TEST_CASE("a pipeline trains bit for bit as one rank does") {
    for (const ScheduleKind schedule :
         {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1})
        for (int stages = 1; stages <= 4; ++stages)
            for (int stage = 0; stage <= 3; ++stage)
                for (const std::vector<int>& sizes : {std::vector<int>{1}, {2}, {1, 1}}) {
                    PipelineCase pipeline{pipeline_job(), stages, schedule};
                    pipeline.job.node_sizes = sizes;
                    pipeline.job.stage = stage;
                    check_as_one(pipeline);
                }
}

TEST_CASE("a pipeline clips, recomputes and takes any number of micro steps") {
    for (const int64_t micro_steps : {1, 2, 3, 7})
        for (const int64_t recompute : {0, 1, 2})
            for (const double clipping : {0.0, 0.05}) {
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

}  // namespace dslaunch
