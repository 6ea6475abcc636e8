#include "plan/layout/gradient_buffers.h"

#include <algorithm>

namespace dslaunch::plan {

namespace {

struct Held {
    int bucket;
    BufferUse use;  // positions count the backwards
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
            // A bucket that is reduced at the step's end holds its memory through all micro steps.
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
