#include "job/run/job_steps.h"

#include <algorithm>

#include "base/log.h"
#include "base/machine/memory_limits.h"
#include "job/setup/job_layout.h"
#include "job/setup/written_parameters.h"
#include "plan/print/trace.h"
#include "storage/files/atomic_file.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {
namespace {

// Returns the size of each chunk, in the order in which chunks are kept in memory. If a chunk has
// different sizes on the ranks, returns the largest size, so all ranks get the same result.
std::vector<Bytes> chunk_bytes(const plan::StateChunks& chunks, const plan::ChunkFormat& format) {
    std::vector<Bytes> bytes;
    for (const int c : chunks.keep_order) {
        plan::StateChunk chunk = chunks.all[c].given_back();
        chunk.range.numel = chunk.numel_max;
        const plan::ChunkLayout layout = plan::chunk_layout(chunk, format);
        bytes.push_back(Bytes{layout.bytes + layout.sum_bytes});
    }
    return bytes;
}

}  // namespace

JobSteps::JobSteps(const JobSetup& setup, const runtime::Topology& place, const Parts& parts,
                   StepsOptions options)
    : setup_(setup),
      place_(place),
      own_(parts.own),
      buffers_(parts.buffers),
      state_(parts.state),
      equal_check_(parts.own, setup.on_gpu ? setup.own_ranks().each_alone() : setup.own_ranks(),
                   setup.model_info, setup.place.members,
                   zero::ShardOptimizer::state_names(setup.config().optimizer)),
      written_here_(written_here(setup)),
      options_(std::move(options)),
      kind_(kind_of(setup.plan)) {
    const plan::StepPlanOptions& plan = setup.plan_options;
    if (plan.offload.adaptive)
        placement_.emplace(chunk_bytes(setup.plan.chunks, plan.chunk_format()),
                           plan.offload.swap_buffers,
                           std::ranges::count_if(setup.plan.chunks.all, &plan::StateChunk::kept),
                           plan.offload.eviction);
    if (StepKinds::differ(setup.config())) kinds_.emplace(setup);
}

const plan::StepPlan* JobSteps::before_step(int64_t update) {
    if (setup_.config().broadcast_buffers) buffers_.broadcast();
    runtime::write_parameters(*setup_.segmented, state_, written_here_);
    return kinds_ ? plan_of(update) : nullptr;
}

// Returns the plan of UPDATE if it differs from the plan of the previous update, otherwise null.
const plan::StepPlan* JobSteps::plan_of(int64_t update) {
    const plan::StepKind kind = kinds_->of(update);
    if (kind == kind_) return nullptr;
    kind_ = kind;
    if (kind == kind_of(setup_.plan)) return &setup_.plan;
    const auto found = std::ranges::find(plans_, kind, kind_of);
    if (found != plans_.end()) return &*found;
    plans_.push_back(make_plan(setup_, setup_.place.of_stage, kind));
    compare_plans(own_, plans_.back());
    return &plans_.back();
}

void JobSteps::end_step(int64_t step, double /*loss*/, bool /*skipped*/) {
    if (setup_.config().average_buffers) buffers_.average();
    const int64_t interval = setup_.config().check_equal_interval;
    // With an optimizer that compresses, a host may update its own parameters for some steps before
    // the hosts exchange them. Meanwhile the parameters differ, so they are not compared.
    if (interval > 0 && step % interval == 0 && !setup_.config().optimizer.compresses())
        equal_check_.check(step, state_);
}

plan::StepPlanOptions JobSteps::options_with(int64_t kept) const {
    plan::StepPlanOptions options = setup_.plan_options;
    options.offload.kept_chunks = kept;
    return options;
}

plan::PlacementFacts JobSteps::own_facts(const plan::StepPlan& plan) const {
    plan::PlacementFacts facts = placement_->measured();
    for (const plan::Instruction& instruction : plan.instructions) {
        if (instruction.op == plan::Op::kRead) facts.read += instruction.bytes;
        if (instruction.op == plan::Op::kWrite) facts.written += instruction.bytes;
    }
    facts.free = free_memory(place_.local_world_size());
    return facts;
}

const plan::StepPlan* JobSteps::after_step(const runtime::StepRun& run) {
    if (!placement_ || !placement_->add(plan::step_times(*run.plan, run.spans, run.seconds)))
        return nullptr;
    const std::vector<plan::PlacementFacts> ranks =
        runtime::gather_values(own_, own_facts(*run.plan));
    const int64_t before = placement_->kept();
    const plan::PlacementChoice choice = placement_->decide(plan::agreed_facts(ranks));
    if (place_.rank() == 0) log_info("placement", "after step {}: {}", run.step, choice.why);
    if (choice.value == before) return nullptr;
    plan::StepPlan& plan = placed_[next_placed_];
    next_placed_ = 1 - next_placed_;
    plan = plan::make_step_plan(setup_.info, setup_.layout, options_with(choice.value));
    compare_plans(own_, plan);
    return &plan;
}

void JobSteps::trace_step(const runtime::StepRun& run) {
    if (options_.output.empty()) return;
    std::vector<plan::InstructionSpan> predicted;
    if (options_.rates) predicted = forecast_step(*run.plan, setup_, place_, *options_.rates);
    storage::write_atomically(options_.output + "/trace.json",
                              plan::trace_json(*run.plan, setup_.info, run.spans, predicted));
    log_info("train", "{}/trace.json shows step {}: open it at ui.perfetto.dev", options_.output,
             run.step);
}

}  // namespace dslaunch::job
