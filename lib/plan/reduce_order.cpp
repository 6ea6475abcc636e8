#include "plan/reduce_order.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch {

void check_options(const StepPlanOptions& options) {
    DSL_CHECK(options.stage == 0 || options.partition != nullptr, "stage {} without a partition",
              options.stage);
    const bool may_fuse = updates_early(options) && options.stage == 0 && options.node_count() == 1;
    DSL_CHECK(!options.fused_update || may_fuse,
              "a fused update needs one host, no clipping and no accumulation after the reduction");
    const std::vector<PipelineWork>& order = options.stage_work.order;
    const auto forwards = std::ranges::count(order, WorkKind::kForward, &PipelineWork::kind);
    DSL_CHECK(order.empty() || forwards == options.accumulation_steps,
              "{} forwards for {} micro steps", forwards, options.accumulation_steps);
}

bool updates_early(const StepPlanOptions& options) {
    return !options.norm_first() && !options.keeps_reduced();
}

bool sums_itself(const StepPlanOptions& options) {
    if (options.stage == 0) return options.fused_update;
    return options.node_count() == 1 && (updates_early(options) || options.keeps_reduced());
}

std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                              const StepPlanOptions& options) {
    std::vector<int> order;
    for (size_t s = model.segments.size(); s-- > 0;) {
        if (!model.segments[s].backward) continue;
        for (int b = layout.trained_buckets; b-- > 0;) {
            const Bucket& bucket = layout.buckets[static_cast<size_t>(b)];
            const bool ready = bucket.ready_segment == static_cast<int>(s);
            if (ready && bucket.kind != BucketKind::kTied) order.push_back(b);
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

}  // namespace dslaunch
