#include "plan/step/reduce_and_update.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/layout/reused_buffers.h"
#include "plan/step/gather_schedule.h"

namespace dslaunch::plan {

void check_options(const StepPlanOptions& options) {
    DSL_CHECK(options.stage == 0 || options.partition != nullptr, "stage {} needs a partition",
              options.stage);
    const bool may_fuse = updates_early(options) && options.stage == 0 && options.sums_on_host();
    DSL_CHECK(!options.fused_update || may_fuse,
              "a fused update needs one host, no clipping and no accumulation after the reduction");
    DSL_CHECK(!options.compression.errors || (options.node_count() > 1 &&
                                              (options.stage == 0 || !options.shards_over_hosts())),
              "compression needs several hosts that each have a full copy; there are {}",
              options.node_count());
    DSL_CHECK(options.compression.errors || !is_compressed(options.exchange),
              "{} needs room for the errors of its compression", exchange_name(options.exchange));
    const LagPlan& lag = options.lag;
    DSL_CHECK(lag.on || (lag.kind == Lag::kWhole && !lag.selects),
              "the plan has options of lagging updates, but updates do not lag");
    DSL_CHECK(lag.overlaps || lag.kind != Lag::kLate,
              "late updates need an overlap with the next step");
    const bool packs = options.offload.packings != decltype(options.offload.packings){};
    DSL_CHECK(!lag.on || (options.exchange == Exchange::kExact && !options.offload.parameters &&
                          !packs && !options.stage_work.in_pipeline() && !options.whole_tensors &&
                          options.optimizer_states == 2),
              "lagging updates cannot be combined with other options that move or round optimizer "
              "states");
    const std::vector<PipelineWork>& order = options.stage_work.order;
    const auto forwards = std::ranges::count(order, WorkKind::kForward, &PipelineWork::kind);
    const std::vector<StagePart>& parts = options.stage_work.parts;
    DSL_CHECK(order.empty() || forwards == options.accumulation_steps * std::ssize(parts),
              "{} forwards of {} parts do not match {} micro steps", forwards, parts.size(),
              options.accumulation_steps);
}

bool updates_early(const StepPlanOptions& options) {
    return !options.norm_first() && !options.keeps_reduced();
}

bool sums_itself(const StepPlanOptions& options) {
    if (options.stage == 0) return options.fused_update;
    return options.sums_on_host() && (updates_early(options) || options.keeps_reduced());
}

namespace {

// A backward that adds to the gradients of parameters. gradient_works() returns them in the order
// of the step.
struct GradientWork {
    size_t part = 0;
    int micro_step = 0;
};
std::vector<GradientWork> gradient_works(const StepPlanOptions& options) {
    std::vector<GradientWork> works;
    for (const PipelineWork& work : options.stage_work.order)
        if (work.kind == WorkKind::kBackward || work.kind == WorkKind::kBackwardWeight)
            works.push_back({static_cast<size_t>(work.chunk), work.micro_batch});
    if (!options.stage_work.in_pipeline())
        for (int m = 0; m < options.accumulation_steps; ++m) works.push_back({0, m});
    return works;
}

}  // namespace

std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                              const StepPlanOptions& options) {
    const std::vector<StagePart> parts = parts_of(options.stage_work, model.segments.size());
    std::vector<int> order;
    for (const GradientWork& work : gradient_works(options)) {
        if (!options.reduces_each() && work.micro_step + 1 < options.accumulation_steps) continue;
        const SegmentRange& range = parts[work.part].segments;
        for (int s = range.end; s-- > range.begin;) {
            if (!model.segments[s].backward) continue;
            for (int b = layout.trained_buckets; b-- > 0;) {
                const Bucket& bucket = layout.buckets[b];
                if (bucket.ready_segment == s && bucket.kind != BucketKind::kTied)
                    order.push_back(b);
            }
        }
    }
    for (const TiedParameter& tie : options.stage_work.ties)
        order.push_back(layout.bucket_of(layout.slice_of(tie.parameter)));
    return order;
}

std::vector<int> update_order(const ModelInfo& model, const FlatLayout& layout,
                              const StepPlanOptions& options) {
    if (updates_early(options)) return reduce_order(model, layout, options);
    std::vector<int> order;
    for (int b = layout.trained_buckets; b-- > 0;) order.push_back(b);
    return order;
}

namespace {

// Returns, for each segment, the trained buckets to which its backward adds. If several parts of
// the stage read a parameter, only one of them adds to the bucket: the part that contains
// Bucket::ready_segment, whose backward runs last. The sums of the other parts wait outside the
// bucket until this part runs its backward of the same micro step.
std::vector<std::vector<int>> gradient_buckets_of_segments(const ModelInfo& model,
                                                           const FlatLayout& layout,
                                                           const StepPlanOptions& options) {
    const std::vector<StagePart> parts = parts_of(options.stage_work, model.segments.size());
    std::vector<std::vector<int>> buckets_of = buckets_of_segments(model, layout);
    for (size_t s = 0; s < buckets_of.size(); ++s)
        std::erase_if(buckets_of[s], [&](int b) {
            const int ready = layout.buckets[b].ready_segment;
            return b >= layout.trained_buckets ||
                   part_at(parts, ready) != part_at(parts, static_cast<int>(s));
        });
    return buckets_of;
}

}  // namespace

ReduceAndUpdate::ReduceAndUpdate(const ModelInfo& model, const FlatLayout& layout,
                                 const StepPlanOptions& options, const PersistentBuffers& kept,
                                 StepPlan& plan, ChunkPasses& chunk_passes)
    : layout_(layout),
      options_(options),
      kept_(kept),
      plan_(plan),
      chunk_passes_(chunk_passes),
      links_(layout, options),
      buckets_of_(gradient_buckets_of_segments(model, layout, options)),
      claimed_(layout.buckets.size(), -1) {}

void ReduceAndUpdate::choose_buffers(const ModelInfo& model) {
    if (options_.stage < 2) return;
    ReusedBuffers buffers = make_gradient_buffers(model, layout_, buckets_of_);
    plan_.gradient_buffer_of_bucket = std::move(buffers.buffer_of_use);
    plan_.gradient_buffer_numel = std::move(buffers.numel);
}

void ReduceAndUpdate::add_claims(int segment, int m) {
    for (const int b : buckets_of_[segment]) {
        int& claimed = claimed_[b];
        const bool fresh = claimed < 0 || (options_.reduces_each(bucket(b)) && claimed != m);
        if (!fresh) continue;
        claimed = m;
        plan_.add(Op::kClaim, Lane::kCompute, b, m).writes = {gradients(b)};
    }
}

void ReduceAndUpdate::join_gradients(int segment, Instruction& backward) const {
    for (const int b : buckets_of_[segment]) backward.writes.push_back(gradients(b));
}

// Returns the plan buffer that contains the gradients of bucket B.
int ReduceAndUpdate::gradients(int b) const {
    const auto i = static_cast<size_t>(b);
    return options_.stage < 2 ? kept_.gradients[i]
                              : kept_.gradient_buffers[plan_.gradient_buffer_of_bucket[i]];
}

void ReduceAndUpdate::count_gather(Instruction& gather) const {
    gather.bytes = Bytes{bucket(gather.bucket).numel * options_.parameter_bytes};
    gather.sent = links_.sent_by_gather(gather.bucket);
}

void ReduceAndUpdate::begin_step(const ModelInfo& model) {
    if (options_.lag.kind != Lag::kPartial) chunk_passes_.begin_turns();
    if (options_.lag.kind != Lag::kLate) return;
    for (const int b : update_order(model, layout_, options_)) {
        const auto i = static_cast<size_t>(b);
        for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c)
            add_rest_update(c);
    }
}

void ReduceAndUpdate::add_rest_update(int c) {
    const int b = chunk(c).bucket;
    Instruction& update = plan_.add(Op::kUpdateRest, Lane::kUpdate, b);
    update.chunk = c;
    // The parameters that kUpdateRest reads are not listed: they do not change before the Update
    // that follows.
    update.reads = {kept_.choice};
    update.writes = {kept_.waiting[b], kept_.moments[b]};
    chunk_passes_.join_chunk(update);
    chunk_passes_.after_chunk(c);
}

void ReduceAndUpdate::end_step(const ModelInfo& model) {
    chunk_passes_.begin_updates();
    if (options_.norm_first()) add_norm();
    if (options_.lag.selects) add_select();
    if (updates_early(options_)) return;
    for (const int b : update_order(model, layout_, options_)) add_updates(b);
}

void ReduceAndUpdate::add_reductions(int segment, int m) {
    if (!options_.reduces_each() && !last_micro_step(m)) return;
    for (int b = layout_.trained_buckets; b-- > 0;)
        if (bucket(b).ready_segment == segment && !is_tied(b)) add_reduction(b, m);
}

void ReduceAndUpdate::add_reduction(int b, int m) {
    // Post writes the gradients, since it zeroes the slices that got no gradient.
    plan_.add(Op::kPost, Lane::kCompute, b, m).writes = {gradients(b)};
    if (!sums_itself(options_)) {
        Instruction& reduce = plan_.add(Op::kReduce, Lane::kCommunication, b, m);
        reduce.writes = {gradients(b)};
        const int ranks =
            options_.exchange == Exchange::kExact ? options_.world_size : options_.local_world_size;
        reduce.bytes = ranks > 1 ? Bytes{bucket(b).numel * 4} : Bytes{};
        reduce.sent = links_.sent_by_reduce(b);
    }
    if (options_.keeps_reduced()) add_accumulates(b, m);
    if (updates_early(options_)) add_updates(b);
}

void ReduceAndUpdate::add_tie(const TiedParameter& tie) {
    const int slice = layout_.slice_of(tie.parameter);
    const int b = slice < 0 ? -1 : layout_.bucket_of(slice);
    DSL_CHECK(b >= 0 && is_tied(b), "parameter {} is tied, but has no bucket of its own",
              tie.parameter);
    const Bytes others{(std::ssize(tie.stages) - 1) * (bucket(b).numel + flag_numel(bucket(b))) *
                       4};
    const int m = static_cast<int>(options_.accumulation_steps) - 1;
    const int received = plan_.add({fmt::format("gradients of bucket {} from other stages", b),
                                    BufferKind::kGradients, Tier::kMemory, others, false});
    Instruction& sum = plan_.add(Op::kTie, Lane::kCompute, b, m);
    sum.writes = {gradients(b)};
    sum.creates = {received};
    sum.frees = {received};
    sum.bytes = others;
    add_reduction(b, m);
}

void ReduceAndUpdate::add_accumulates(int b, int m) {
    const auto i = static_cast<size_t>(b);
    for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c) {
        chunk_passes_.before_accumulate(c);
        Instruction& accumulate = plan_.add(Op::kAccumulate, Lane::kCommunication, b, m);
        accumulate.chunk = c;
        accumulate.reads = {gradients(b)};
        if (chunk_passes_.sums_pass(c)) {
            chunk_passes_.join_accumulate(accumulate);
        } else {
            accumulate.writes = {kept_.reduced[i]};
        }
        // The squares for the norm are added up here, while the sums are in memory.
        if (options_.norm_first() && last_micro_step(m)) accumulate.writes.push_back(kept_.norm);
        chunk_passes_.after_accumulate(c);
    }
}

// Returns the plan buffer from which Norm and Update read the gradients of bucket B.
int ReduceAndUpdate::summed(int b) const {
    return options_.keeps_reduced() ? kept_.reduced[b] : gradients(b);
}

void ReduceAndUpdate::add_norm() {
    Instruction& norm = plan_.add(Op::kNorm, Lane::kCommunication);
    for (int b = 0; b < layout_.trained_buckets; ++b) norm.reads.push_back(summed(b));
    // The Norm also waits for the late updates of all ranks. They still read the parameters, which
    // the updates after the Norm change.
    if (options_.lag.kind == Lag::kLate)
        norm.reads.insert(norm.reads.end(), kept_.waiting.begin(), kept_.waiting.end());
    norm.writes = {kept_.norm};
    norm.sent = links_.sent_by_norm();
}

void ReduceAndUpdate::add_select() {
    Instruction& select = plan_.add(Op::kSelect, Lane::kCommunication);
    for (int b = 0; b < layout_.trained_buckets; ++b) select.reads.push_back(summed(b));
    select.reads.push_back(kept_.norm);
    select.writes = {kept_.choice};
}

// Adds the exchange of bucket B. It reads the values from this rank's states, and later updates use
// the averages.
void ReduceAndUpdate::add_exchange(int b) {
    Instruction& exchange = plan_.add(Op::kExchange, Lane::kCommunication, b);
    exchange.reads = {summed(b), kept_.norm};
    exchange.writes = {kept_.exchange, kept_.errors[b], kept_.moments[b]};
    if (options_.exchange == Exchange::kMoves) exchange.writes.push_back(kept_.parameters[b]);
    exchange.bytes = links_.sent_by_exchange_of_all(b);
    exchange.sent = links_.sent_by_exchange(b);
}

void ReduceAndUpdate::add_updates(int b) {
    const auto i = static_cast<size_t>(b);
    if (is_compressed(options_.exchange)) add_exchange(b);
    for (int c = plan_.chunks.first_of_bucket[i]; c < plan_.chunks.first_of_bucket[i + 1]; ++c)
        add_update(c);
    if (options_.stage == 0 || !options_.shards_over_hosts() || options_.is_gathered(bucket(b)))
        return;
    Instruction& gather = plan_.add(Op::kGather, Lane::kCommunication, b);
    gather.writes = {kept_.parameters[i]};
    count_gather(gather);
}

void ReduceAndUpdate::add_update(int c) {
    const int b = chunk(c).bucket;
    const auto i = static_cast<size_t>(b);
    Instruction& update = plan_.add(Op::kUpdate, Lane::kCommunication, b);
    update.chunk = c;
    update.reads = {summed(b), kept_.norm};
    update.writes = {kept_.moments[i], kept_.parameters[i]};
    if (is_compressed(options_.exchange)) update.reads.push_back(kept_.exchange);
    if (chunk(c).last)
        update.bytes = options_.local_world_size > 1 ? Bytes{bucket(b).numel * 4} : Bytes{};
    if (options_.lag.on) {
        update.reads.push_back(kept_.choice);
        update.writes.push_back(kept_.waiting[i]);
    }
    if (options_.lag.kind != Lag::kWhole) {
        chunk_passes_.join_sums(update);
        return chunk_passes_.after_sums(c);
    }
    chunk_passes_.join_update(update);
    chunk_passes_.after_update(c);
}

}  // namespace dslaunch::plan
