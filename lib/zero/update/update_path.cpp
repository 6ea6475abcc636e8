#include "zero/update/update_path.h"

#include <algorithm>

#include "kernels/flat_optimizer.h"

namespace dslaunch::zero {

void UpdatePath::show(const plan::Instruction& instruction, const ShownUpdate& shown) const {
    const kernels::FlatRange& update = shown.update;
    std::vector<float> gradients;
    if (!shown.done) {
        gradients.resize(static_cast<size_t>(shown.range.numel));
        kernels::ordered_sum(update.gradients, shown.mean_scale, gradients.data(),
                             shown.range.numel);
    }
    const plan::FlatLayout& layout = *parts_.place().layout;
    const auto see = [&](int i, const Range& elements, int64_t begin) {
        const auto part = [&](auto whole) {
            return whole.empty() ? whole
                                 : whole.subspan(static_cast<size_t>(begin - shown.range.begin),
                                                 static_cast<size_t>(elements.numel));
        };
        runtime::SeenUpdate seen;
        seen.parameter = layout.slices[i].parameter;
        seen.bucket = instruction.bucket;
        seen.chunk = instruction.chunk;
        seen.elements = elements;
        seen.update = shown.run.step;
        seen.optimizer = &parts_.runs().rule(shown.run).optimizer;
        seen.lr = parts_.rate(shown.run);
        seen.betas = parts_.now().settings.betas;
        seen.loss_scale = parts_.now().settings.loss_scale;
        seen.gradients = part(std::span<const float>(gradients));
        seen.factor = parts_.now().clip_factor;
        seen.parameters = part(update.parameters);
        seen.first = part(update.first);
        seen.second = part(update.second);
        seen.third = part(update.third);
        std::ranges::copy(shown.factors, seen.factors.begin());
        seen.half = part(update.half_parameters);
        shown.done ? parts_.witness()->after_update(seen) : parts_.witness()->before_update(seen);
    };
    for_each_slice(layout, instruction.bucket, shown.range, see);
}

}  // namespace dslaunch::zero
