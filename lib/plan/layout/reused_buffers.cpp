#include "plan/layout/reused_buffers.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace dslaunch::plan {

ReusedBuffers assign_buffers(std::span<const BufferUse> uses) {
    ReusedBuffers buffers;
    std::vector<int> free_after;  // by buffer, the end of its newest use
    for (size_t u = 0; u < uses.size(); ++u) {
        const BufferUse& use = uses[u];
        DSL_CHECK(u == 0 || uses[u - 1].begin <= use.begin, "the uses of buffers are not in order");
        int newest = -1;
        for (const int end : free_after)
            if (end < use.begin) newest = std::max(newest, end);
        int best = -1;
        int64_t best_growth = std::numeric_limits<int64_t>::max();
        for (size_t s = 0; s < buffers.numel.size(); ++s) {
            if (free_after[s] >= use.begin || free_after[s] == newest) continue;
            const int64_t growth = std::max<int64_t>(0, use.numel - buffers.numel[s]);
            const bool tighter =
                growth == best_growth && best >= 0 && buffers.numel[s] < buffers.numel[best];
            if (growth < best_growth || tighter) {
                best = static_cast<int>(s);
                best_growth = growth;
            }
        }
        if (best < 0) {
            best = static_cast<int>(buffers.numel.size());
            buffers.numel.push_back(0);
            free_after.push_back(0);
        }
        const auto s = static_cast<size_t>(best);
        buffers.numel[s] = std::max(buffers.numel[s], use.numel);
        free_after[s] = use.end;
        buffers.buffer_of_use.push_back(best);
    }
    return buffers;
}

namespace {

struct Held {
    int bucket;
    BufferUse use;  // begin and end are numbers of backwards, from 0
};

std::vector<Held> find_uses(const ModelInfo& model, const FlatLayout& layout,
                            std::span<const std::vector<int>> buckets_of) {
    std::vector<Held> held;
    int position = 0;
    const auto last = static_cast<int>(model.segments.size());
    std::vector<int> first(static_cast<size_t>(layout.trained_buckets), -1);
    for (size_t s = model.segments.size(); s-- > 0; ++position) {
        if (!model.segments[s].backward) continue;
        for (const int b : buckets_of[s])
            if (b < layout.trained_buckets && first[b] < 0) first[b] = position;
        for (int b = 0; b < layout.trained_buckets; ++b) {
            const Bucket& bucket = layout.buckets[b];
            const int begin = first[b];
            if (bucket.ready_segment != static_cast<int>(s) || begin < 0) continue;
            const int64_t numel = bucket.numel + flag_numel(bucket);
            // A bucket that is reduced at the end of the step uses its memory throughout all micro
            // steps.
            const bool always = bucket.kind == BucketKind::kTied;
            held.push_back({b, {numel, always ? 0 : begin, always ? last : position}});
        }
    }
    std::stable_sort(held.begin(), held.end(),
                     [](const Held& a, const Held& b) { return a.use.begin < b.use.begin; });
    return held;
}

}  // namespace

ReusedBuffers make_gradient_buffers(const ModelInfo& model, const FlatLayout& layout,
                                    std::span<const std::vector<int>> buckets_of) {
    const std::vector<Held> held = find_uses(model, layout, buckets_of);
    std::vector<BufferUse> uses;
    for (const Held& one : held) uses.push_back(one.use);
    ReusedBuffers buffers = assign_buffers(uses);
    std::vector<int> of_bucket(static_cast<size_t>(layout.trained_buckets), -1);
    for (size_t u = 0; u < held.size(); ++u) of_bucket[held[u].bucket] = buffers.buffer_of_use[u];
    buffers.buffer_of_use = std::move(of_bucket);
    return buffers;
}

}  // namespace dslaunch::plan
