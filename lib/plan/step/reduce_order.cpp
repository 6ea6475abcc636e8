#include "plan/step/reduce_order.h"

#include <algorithm>

#include "base/check.h"
#include "plan/step/gather_schedule.h"

namespace dslaunch::plan {

void check_options(const StepPlanOptions& options) {
    DSL_CHECK(options.stage == 0 || options.partition != nullptr, "stage {} without a partition",
              options.stage);
    const bool may_fuse = updates_early(options) && options.stage == 0 && options.sums_on_host();
    DSL_CHECK(!options.fused_update || may_fuse,
              "a fused update needs one host, no clipping and no accumulation after the reduction");
    DSL_CHECK(!options.compression.errors || (options.node_count() > 1 &&
                                              (options.stage == 0 || !options.shards_over_hosts())),
              "compression over {} hosts, each of which must hold a copy", options.node_count());
    DSL_CHECK(options.compression.errors || !is_compressed(options.exchange),
              "{} without room for what compression loses", exchange_name(options.exchange));
    const LagPlan& lag = options.lag;
    DSL_CHECK(lag.on || (lag.kind == Lag::kWhole && !lag.selects),
              "a plan whose updates do not lag");
    DSL_CHECK(lag.overlaps || lag.kind != Lag::kLate, "no update of the rest is late");
    const bool packs = options.offload.packings[0] != StatePacking::kNone ||
                       options.offload.packings[1] != StatePacking::kNone;
    DSL_CHECK(!lag.on || (options.exchange == Exchange::kExact && !options.offload.parameters &&
                          !packs && !options.stage_work.in_pipeline() && !options.whole_tensors &&
                          options.optimizer_states == 2),
              "updates lag beside what moves or rounds states otherwise");
    const std::vector<PipelineWork>& order = options.stage_work.order;
    const auto forwards = std::ranges::count(order, WorkKind::kForward, &PipelineWork::kind);
    const std::vector<StagePart>& parts = options.stage_work.parts;
    DSL_CHECK(order.empty() || forwards == options.accumulation_steps * std::ssize(parts),
              "{} forwards of {} parts for {} micro steps", forwards, parts.size(),
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

// The backwards that add to the gradients of parameters, in the order of the step.
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

}  // namespace dslaunch::plan
