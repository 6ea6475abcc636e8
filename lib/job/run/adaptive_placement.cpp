#include "job/run/adaptive_placement.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/log.h"
#include "base/machine/memory_limits.h"
#include "base/text/wire.h"
#include "job/setup/job_layout.h"

namespace dslaunch::job {
namespace {

constexpr double plan::PlacementFacts::*kTimes[] = {
    &plan::PlacementFacts::step_s,        &plan::PlacementFacts::noise_s,
    &plan::PlacementFacts::compute_s,     &plan::PlacementFacts::communication_s,
    &plan::PlacementFacts::read_s,        &plan::PlacementFacts::write_s,
    &plan::PlacementFacts::waited_read_s, &plan::PlacementFacts::waited_write_s};
constexpr Bytes plan::PlacementFacts::*kSizes[] = {
    &plan::PlacementFacts::read, &plan::PlacementFacts::written, &plan::PlacementFacts::free};

std::string encode(const plan::PlacementFacts& facts) {
    WireWriter writer;
    for (const auto time : kTimes) writer.u64(std::bit_cast<uint64_t>(facts.*time));
    for (const auto bytes : kSizes) writer.i64((facts.*bytes).value);
    return writer.bytes();
}

plan::PlacementFacts decode(const std::string& bytes) {
    WireReader reader(bytes, "placement facts of a rank");
    plan::PlacementFacts facts;
    for (const auto time : kTimes) facts.*time = std::bit_cast<double>(reader.u64());
    for (const auto size : kSizes) facts.*size = Bytes{reader.i64()};
    return facts;
}

// Bytes of each chunk, in keep order, on the rank that has most of it; the same on all ranks.
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

// Bytes that this rank may still take if all RANKS of its host take as much.
Bytes free_memory(int ranks) {
    const std::optional<MemoryLimit> share = tightest_share(read_memory_state().limits, ranks);
    return share ? share->left : Bytes{std::numeric_limits<int64_t>::max()};
}

int64_t kept_by(const plan::StepPlan& plan) {
    return std::ranges::count_if(plan.chunks.all, &plan::StateChunk::kept);
}

}  // namespace

AdaptivePlacement::AdaptivePlacement(const JobSetup& setup, const runtime::Topology& place,
                                     runtime::Collectives& collectives)
    : setup_(setup),
      place_(place),
      collectives_(collectives),
      control_(chunk_bytes(setup.plan.chunks, setup.plan_options.chunk_format()),
               setup.plan_options.offload.swap_buffers, kept_by(setup.plan),
               setup.plan_options.offload.eviction) {}

plan::StepPlanOptions AdaptivePlacement::options_with(int64_t kept) const {
    plan::StepPlanOptions options = setup_.plan_options;
    options.offload.kept_chunks = kept;
    return options;
}

plan::PlacementFacts AdaptivePlacement::own_facts(const plan::StepPlan& plan) const {
    plan::PlacementFacts facts = control_.measured();
    for (const plan::Instruction& instruction : plan.instructions) {
        if (instruction.op == plan::Op::kRead) facts.read += instruction.bytes;
        if (instruction.op == plan::Op::kWrite) facts.written += instruction.bytes;
    }
    facts.free = free_memory(place_.local_world_size());
    return facts;
}

const plan::StepPlan* AdaptivePlacement::after_step(const runtime::StepRun& run) {
    if (!control_.add(plan::step_times(*run.plan, run.spans, run.seconds))) return nullptr;
    std::vector<plan::PlacementFacts> ranks;
    for (const std::string& bytes : collectives_.all_gather(encode(own_facts(*run.plan))))
        ranks.push_back(decode(bytes));
    const int64_t before = control_.kept();
    const plan::PlacementChoice choice = control_.decide(plan::agreed_facts(ranks));
    if (place_.rank() == 0) log_info("placement", "after step {}: {}", run.step, choice.why);
    if (choice.value == before) return nullptr;
    plan::StepPlan& plan = plans_[next_];
    next_ = 1 - next_;
    plan = plan::make_step_plan(setup_.info, setup_.layout, options_with(choice.value));
    compare_plans(collectives_, plan);
    return &plan;
}

}  // namespace dslaunch::job
