#include "zero/update/update_runs.h"

namespace dslaunch::zero {

UpdateRuns::UpdateRuns(const plan::FlatLayout& layout, const UpdateRules& rules,
                       runtime::SavedState* saved)
    : layout_(layout), rules_(rules), updates_(static_cast<size_t>(layout.trained_slices), 0) {
    for (size_t i = 0; saved != nullptr && i < updates_.size(); ++i)
        updates_[i] = saved->updates(layout.slices[i].parameter);
}

void UpdateRuns::open(const plan::Bucket& bucket, std::span<const float> used, bool counts) {
    runs_.clear();
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        if (used.empty() ? updates_[i] == 0 : used[i - bucket.first_slice] <= 0) continue;
        const plan::ParameterSlice& slice = layout_.slices[i];
        const int64_t step = counts ? ++updates_[i] : updates_[i];
        const Range range{slice.offset_numel - bucket.offset_numel,
                          round_up(slice.numel, plan::kSliceAlignmentNumel)};
        const int rule = rules_.index_of(slice.parameter);
        const bool extends = !runs_.empty() && runs_.back().step == step &&
                             runs_.back().rule == rule && runs_.back().range.end() == range.begin &&
                             !rules_.rules[rule].optimizer.needs_whole_tensors();
        if (extends) {
            runs_.back().range.numel += range.numel;
        } else {
            runs_.push_back({range, step, rule, i});
        }
    }
}

bool UpdateRuns::cover(const plan::Bucket& bucket) const {
    int64_t covered = 0;
    for (const Run& run : runs_) covered += run.range.numel;
    return covered >= bucket.numel;
}

}  // namespace dslaunch::zero
