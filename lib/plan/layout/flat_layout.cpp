#include "plan/layout/flat_layout.h"

#include <algorithm>
#include <tuple>

namespace dslaunch::plan {

int FlatLayout::slice_of(int parameter) const {
    return slice_of_parameter[parameter];
}

int FlatLayout::bucket_of(int slice) const {
    const auto after =
        std::upper_bound(buckets.begin(), buckets.end(), slice,
                         [](int s, const Bucket& bucket) { return s < bucket.first_slice; });
    return static_cast<int>(after - buckets.begin()) - 1;
}

namespace {

struct Placed {
    ParameterSlice slice;
    BucketKind kind;
};

// The first and the last segment in which a parameter is used; -1: it is not used.
struct SegmentSpan {
    int first = -1;
    int last = -1;
    void include(int segment) {
        if (first < 0) first = segment;
        last = segment;
    }
};

// Returns the index of the part that contains SEGMENT. PART_BEGINS has the first segment of each
// part except the first part.
int64_t part_of(const std::vector<int>& part_begins, int segment) {
    return std::ranges::count_if(part_begins, [&](int begin) { return begin <= segment; });
}

// Returns the parameters that are given a slice, in the order of the flat buffer.
std::vector<Placed> order_parameters(const ModelInfo& model, const FlatLayoutOptions& options) {
    std::vector<SegmentSpan> read(model.parameters.size());
    std::vector<SegmentSpan> trained(model.parameters.size());
    for (size_t s = 0; s < model.segments.size(); ++s) {
        for (const int parameter : model.segments[s].parameters) {
            const auto p = static_cast<size_t>(parameter);
            read[p].include(static_cast<int>(s));
            if (model.parameters[p].trainable && model.segments[s].backward)
                trained[p].include(static_cast<int>(s));
        }
    }
    std::vector<Placed> placed;
    int64_t persistent_numel = 0;
    for (size_t p = 0; p < model.parameters.size(); ++p) {
        const ParameterInfo& parameter = model.parameters[p];
        // A trainable parameter gets no gradient if the model detaches it at every use. It counts
        // as frozen, because no Backward would complete its bucket.
        const bool is_frozen = trained[p].first < 0;
        if (read[p].first < 0 || (is_frozen && !options.frozen) || parameter.own_type) continue;
        BucketKind kind = BucketKind::kTrained;
        if (is_frozen) {
            kind = BucketKind::kFrozen;
        } else if (std::ranges::find(options.tied, static_cast<int>(p)) != options.tied.end()) {
            kind = BucketKind::kTied;
        } else if (parameter.numel <= options.persistent_numel_max &&
                   parameter.numel <= options.persistent_total_numel_max - persistent_numel) {
            kind = BucketKind::kPersistent;
            persistent_numel += parameter.numel;
        }
        const SegmentSpan& span = is_frozen ? read[p] : trained[p];
        const bool over_parts = !is_frozen && part_of(options.part_begins, span.first) !=
                                                  part_of(options.part_begins, span.last);
        placed.push_back({{static_cast<int>(p), 0, parameter.numel, span.first, span.last,
                           over_parts, parameter.exact_gradient},
                          kind});
    }
    std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
        return std::tuple(a.kind, a.slice.first_segment) <
               std::tuple(b.kind, b.slice.first_segment);
    });
    return placed;
}

// Appends the slice to the last bucket or, if it does not fit there, opens a new bucket. The slices
// of one segment stay in one bucket, unless this would make the bucket too large. The bucket is
// ready after the backward of its `ready_segment`.
void add_to_bucket(const Placed& placed, const FlatLayoutOptions& options, FlatLayout& layout) {
    const ParameterSlice& slice = placed.slice;
    const auto index = static_cast<int>(layout.slices.size()) - 1;
    const int64_t numel = round_up(slice.numel, kSliceAlignmentNumel);
    const bool fits = !layout.buckets.empty() && placed.kind != BucketKind::kTied &&
                      layout.buckets.back().kind == placed.kind &&
                      part_of(options.part_begins, layout.buckets.back().ready_segment) ==
                          part_of(options.part_begins, slice.first_segment) &&
                      layout.buckets.back().numel + numel <= options.bucket_numel_max;
    const bool same_segment = fits && layout.buckets.back().ready_segment == slice.first_segment;
    const bool still_small = fits && layout.buckets.back().numel < options.bucket_numel_min;
    if (!same_segment && !still_small)
        layout.buckets.push_back(
            {slice.offset_numel, 0, slice.first_segment, index, index, placed.kind});
    Bucket& bucket = layout.buckets.back();
    bucket.numel += numel;
    bucket.end_slice = index + 1;
    bucket.ready_segment = std::min(bucket.ready_segment, slice.first_segment);
}

}  // namespace

FlatLayout make_flat_layout(const ModelInfo& model, const FlatLayoutOptions& options) {
    FlatLayout layout;
    layout.block_numel = options.block_numel;
    layout.slice_of_parameter.assign(model.parameters.size(), -1);
    for (Placed& placed : order_parameters(model, options)) {
        placed.slice.offset_numel = layout.numel;
        layout.numel += round_up(placed.slice.numel, kSliceAlignmentNumel);
        layout.slice_of_parameter[placed.slice.parameter] = static_cast<int>(layout.slices.size());
        layout.slices.push_back(placed.slice);
        add_to_bucket(placed, options, layout);
        if (placed.kind == BucketKind::kFrozen) continue;
        layout.trained_numel = layout.numel;
        layout.trained_buckets = static_cast<int>(layout.buckets.size());
        layout.trained_slices = static_cast<int>(layout.slices.size());
    }
    return layout;
}

std::vector<Range> exact_ranges(const FlatLayout& layout, int bucket) {
    std::vector<Range> ranges;
    const auto add = [&](int64_t begin, int64_t numel) {
        if (!ranges.empty() && ranges.back().end() == begin) {
            ranges.back().numel += numel;
        } else {
            ranges.push_back({begin, numel});
        }
    };
    const Bucket& of = layout.buckets[bucket];
    for (int i = of.first_slice; i < of.end_slice; ++i)
        if (layout.slices[i].exact_gradient)
            add(layout.slices[i].offset_numel - of.offset_numel, layout.slices[i].numel);
    add(of.numel, flag_numel(of));
    return ranges;
}

std::vector<LayoutBlock> blocks_of(const FlatLayout& layout, int bucket) {
    std::vector<LayoutBlock> blocks;
    const Bucket& of = layout.buckets[bucket];
    for (int i = of.first_slice; i < of.end_slice; ++i) {
        const ParameterSlice& slice = layout.slices[i];
        const int64_t start = slice.offset_numel - of.offset_numel;
        for (int64_t at = 0; at < slice.numel; at += layout.block_numel)
            blocks.push_back(
                {bucket, i, start + at, std::min(layout.block_numel, slice.numel - at)});
    }
    return blocks;
}

}  // namespace dslaunch::plan
