#include "plan/flat_layout.h"

#include <algorithm>

namespace dslaunch {

int FlatLayout::slice_of(int parameter) const {
    return slice_of_parameter[static_cast<size_t>(parameter)];
}

namespace {

void place_slices(const ModelInfo& model, FlatLayout& layout) {
    std::vector<int> first(model.parameters.size(), -1);
    std::vector<int> last(model.parameters.size(), -1);
    for (size_t s = 0; s < model.segments.size(); ++s) {
        for (const int parameter : model.segments[s].parameters) {
            const auto p = static_cast<size_t>(parameter);
            if (first[p] < 0) first[p] = static_cast<int>(s);
            last[p] = static_cast<int>(s);
        }
    }
    for (size_t p = 0; p < model.parameters.size(); ++p) {
        if (first[p] < 0 || !model.parameters[p].trainable) continue;
        layout.slices.push_back(
            {static_cast<int>(p), 0, model.parameters[p].numel, first[p], last[p]});
    }
    std::stable_sort(layout.slices.begin(), layout.slices.end(),
                     [](const ParameterSlice& a, const ParameterSlice& b) {
                         return a.first_segment < b.first_segment;
                     });
    layout.slice_of_parameter.assign(model.parameters.size(), -1);
    for (size_t i = 0; i < layout.slices.size(); ++i) {
        ParameterSlice& slice = layout.slices[i];
        slice.offset_numel = layout.numel;
        layout.numel += round_up(slice.numel, kSliceAlignmentNumel);
        layout.slice_of_parameter[static_cast<size_t>(slice.parameter)] = static_cast<int>(i);
    }
}

}  // namespace

FlatLayout make_flat_layout(const ModelInfo& model, const FlatLayoutOptions& options) {
    FlatLayout layout;
    place_slices(model, layout);
    const auto count = static_cast<int>(layout.slices.size());
    for (int i = 0; i < count; ++i) {
        const ParameterSlice& slice = layout.slices[static_cast<size_t>(i)];
        const int64_t numel = round_up(slice.numel, kSliceAlignmentNumel);
        // A bucket takes whole segments, so that it is ready at one segment's backward, unless that
        // makes it too large.
        const bool fits = !layout.buckets.empty() &&
                          layout.buckets.back().numel + numel <= options.bucket_numel_max;
        const bool same_segment =
            fits && layout.buckets.back().ready_segment == slice.first_segment;
        const bool still_small = fits && layout.buckets.back().numel < options.bucket_numel_min;
        if (!same_segment && !still_small)
            layout.buckets.push_back({slice.offset_numel, 0, slice.first_segment, i, i});
        Bucket& bucket = layout.buckets.back();
        bucket.numel += numel;
        bucket.end_slice = i + 1;
        bucket.ready_segment = std::min(bucket.ready_segment, slice.first_segment);
    }
    return layout;
}

}  // namespace dslaunch
