#include "plan/choose/pipeline_options.h"

#include "base/error.h"
#include "plan/choose/schedule_choice.h"

namespace dslaunch::plan {
namespace {

// Throws Error{kConfig}.
void fill_in(PipelineOption& option, StageRequest request, const PipelineWish& wish) {
    request.schedule = option.kind;
    request.shape = option.shape;
    option.choice = wish.first_segments.empty() ? choose_stages(request)
                                                : given_stages(request, wish.first_segments);
    option.schedule = schedule_for(option.kind, option.shape, option.choice.costs);
    option.run = simulate_pipeline(option.schedule, option.choice.costs);
}

}  // namespace

int chunks_of(ScheduleKind kind, const PipelineWish& wish) {
    if (kind == ScheduleKind::kZeroBubbleV) return 2;
    return kind == ScheduleKind::kInterleaved ? wish.chunks : 1;
}

std::vector<PipelineOption> pipeline_options(const StageRequest& costs, const PipelineWish& wish) {
    std::vector<PipelineOption> options;
    for (const ScheduleKind kind : kScheduleKinds) {
        if (wish.schedule && *wish.schedule != kind) continue;
        PipelineOption option;
        option.kind = kind;
        option.shape = {wish.stages, chunks_of(kind, wish), wish.micro_batches};
        try {
            fill_in(option, costs, wish);
        } catch (const Error& error) {
            if (wish.schedule) throw;
            option.why_not = error.what();
        }
        options.push_back(std::move(option));
    }
    return options;
}

int fastest_of(const std::vector<PipelineOption>& options) {
    int fastest = -1;
    for (size_t i = 0; i < options.size(); ++i) {
        if (!options[i].why_not.empty()) continue;
        if (fastest < 0 || options[i].run.step_s < options[fastest].run.step_s)
            fastest = static_cast<int>(i);
    }
    return fastest;
}

}  // namespace dslaunch::plan
