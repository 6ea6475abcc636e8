#include "zero/update/elementwise_path.h"

namespace dslaunch::zero {

void ElementwisePath::begin_bucket(int b) {
    if (!parts_.now().overflow) parts_.open_runs(b);
}

void ElementwisePath::update(const plan::Instruction& chunk, const ChunkView& view, bool writes) {
    const int b = chunk.bucket;
    const bool shows = parts_.witness() != nullptr && writes;
    const auto update_range = [&](const ChunkPart& part, const Run& run, const Range& both) {
        if (parts_.runs().rule(run).optimizer.needs_whole_tensors()) return;
        parts_.for_gradients(
            b, part, both, view,
            [&](const Range& range, std::span<const float* const> gradients, float scale) {
                kernels::FlatRange update = parts_.arrays_of(b, part, view, range);
                update.gradients = gradients;
                update.gradient_scale = scale * parts_.now().clip_factor;
                if (shows) show(chunk, {update, range, scale, run, /*done=*/false});
                parts_.optimizer(run.rule).update(update, parts_.rate(run), run.step,
                                                  parts_.now().settings.betas,
                                                  parts_.place().plan->exchange);
                if (shows) show(chunk, {update, range, scale, run, /*done=*/true});
            });
    };
    for_each_run(chunk.chunk, writes, update_range);
}

}  // namespace dslaunch::zero
