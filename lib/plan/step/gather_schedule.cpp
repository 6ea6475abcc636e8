#include "plan/step/gather_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace dslaunch::plan {

std::vector<int> compute_positions(const ModelInfo& model, std::span<const RecomputeGroup> groups,
                                   const SegmentRange& range) {
    std::vector<int> positions;
    for (int s = range.begin; s < range.end; ++s) positions.push_back(s);
    for (int s = range.end; s-- > range.begin;) {
        if (!model.segments[s].backward) continue;
        for (const RecomputeGroup& group : groups)
            if (s == group.end - 1)
                for (int again = group.begin; again < group.end; ++again)
                    positions.push_back(again);
        positions.push_back(s);
    }
    return positions;
}

std::vector<std::vector<int>> buckets_of_segments(const ModelInfo& model,
                                                  const FlatLayout& layout) {
    std::vector<std::vector<int>> buckets;
    for (const SegmentInfo& segment : model.segments) {
        std::set<int> found;
        for (const int parameter : segment.parameters) {
            const int slice = layout.slice_of(parameter);
            if (slice >= 0) found.insert(layout.bucket_of(slice));
        }
        buckets.emplace_back(found.begin(), found.end());
    }
    return buckets;
}

namespace {

class Scheduler {
  public:
    Scheduler(const FlatLayout& layout, std::span<const std::vector<int>> buckets_of,
              std::span<const int> positions, const GatherLimits& limits)
        : layout_(layout), buckets_of_(buckets_of), positions_(positions), limits_(limits) {}

    GatherSchedule make() {
        collect();
        keep_near_ones();
        prefetch();
        GatherSchedule schedule;
        std::vector<BufferUse> buffer_uses;
        for (const GatherUse& use : uses_)
            buffer_uses.push_back({numel_of(use.bucket), use.issue, use.end});
        const ReusedBuffers buffers = assign_buffers(buffer_uses);
        for (size_t u = 0; u < uses_.size(); ++u) uses_[u].buffer = buffers.buffer_of_use[u];
        schedule.live_numel_max = live_numel_max();
        schedule.uses = std::move(uses_);
        schedule.buffer_numel = buffers.numel;
        return schedule;
    }

  private:
    [[nodiscard]] int64_t numel_of(int bucket) const { return layout_.buckets[bucket].numel; }

    // Collects the uses of buckets. If consecutive positions read the same bucket, they are one
    // use.
    void collect() {
        std::map<int, size_t> newest;  // by bucket
        for (size_t p = 0; p < positions_.size(); ++p) {
            const int at = static_cast<int>(p);
            for (const int b : buckets_of_[positions_[p]]) {
                const auto found = newest.find(b);
                if (found != newest.end() && uses_[found->second].end >= at - 1) {
                    uses_[found->second].end = at;
                } else {
                    newest[b] = uses_.size();
                    uses_.push_back({b, at, at, at, 0});
                }
            }
        }
    }

    // Returns the number of elements of other buckets that are read between two uses of the same
    // bucket. Each bucket counts once.
    [[nodiscard]] int64_t distance(const GatherUse& first, const GatherUse& second) const {
        std::set<int> between;
        for (int p = first.end + 1; p < second.begin; ++p)
            for (const int b : buckets_of_[positions_[p]])
                if (b != first.bucket) between.insert(b);
        int64_t numel = 0;
        for (const int b : between) numel += numel_of(b);
        return numel;
    }

    void keep_near_ones() {
        struct Pair {
            int64_t distance;
            size_t first;
            size_t second;
        };
        std::vector<Pair> pairs;
        for (size_t i = 0; i < uses_.size(); ++i) {
            for (size_t j = i + 1; j < uses_.size(); ++j) {
                if (uses_[j].bucket != uses_[i].bucket) continue;
                const int64_t apart = distance(uses_[i], uses_[j]);
                if (apart <= limits_.reuse_distance_numel_max) pairs.push_back({apart, i, j});
                break;
            }
        }
        std::stable_sort(pairs.begin(), pairs.end(),
                         [](const Pair& a, const Pair& b) { return a.distance < b.distance; });
        std::vector<size_t> merged_into(uses_.size());
        for (size_t i = 0; i < uses_.size(); ++i) merged_into[i] = i;
        const auto root = [&](size_t i) {
            while (merged_into[i] != i) i = merged_into[i];
            return i;
        };
        std::vector<char> gone(uses_.size(), 0);
        for (const Pair& pair : pairs) {
            const size_t first = root(pair.first);
            const int end = uses_[first].end;
            uses_[first].end = uses_[pair.second].end;
            gone[pair.second] = 1;
            if (live_numel_max(gone) > limits_.live_numel_max) {
                uses_[first].end = end;
                gone[pair.second] = 0;
                continue;
            }
            merged_into[pair.second] = first;
        }
        std::vector<GatherUse> kept;
        for (size_t i = 0; i < uses_.size(); ++i)
            if (gone[i] == 0) kept.push_back(uses_[i]);
        uses_ = std::move(kept);
    }

    // Moves each gather ahead of the uses before it, as far as the prefetch limit and the live
    // limit allow. Any prefetch limit above 0 allows at least one use.
    void prefetch() {
        std::stable_sort(uses_.begin(), uses_.end(),
                         [](const GatherUse& a, const GatherUse& b) { return a.begin < b.begin; });
        for (size_t i = 1; i < uses_.size() && limits_.prefetch_numel_max > 0; ++i) {
            int64_t ahead = 0;
            for (size_t j = i; j-- > 0;) {
                ahead += numel_of(uses_[j + 1].bucket);
                if (ahead > limits_.prefetch_numel_max && j + 1 != i) break;
                const int issue = uses_[i].issue;
                // Gathers stay in the order of their uses, and a bucket is not gathered again while
                // it is still held.
                uses_[i].issue = std::max(uses_[i - 1].issue, uses_[j].begin);
                if (still_held(i) || live_numel_max() > limits_.live_numel_max) {
                    uses_[i].issue = issue;
                    break;
                }
            }
        }
    }

    [[nodiscard]] bool still_held(size_t i) const {
        for (size_t j = 0; j < i; ++j)
            if (uses_[j].bucket == uses_[i].bucket && uses_[j].end >= uses_[i].issue) return true;
        return false;
    }

    [[nodiscard]] int64_t live_numel_max(const std::vector<char>& gone = {}) const {
        int64_t most = 0;
        for (int p = 0; p < static_cast<int>(positions_.size()); ++p) {
            int64_t live = 0;
            for (size_t u = 0; u < uses_.size(); ++u)
                if ((gone.empty() || gone[u] == 0) && uses_[u].issue <= p && uses_[u].end >= p)
                    live += numel_of(uses_[u].bucket);
            most = std::max(most, live);
        }
        return most;
    }

    const FlatLayout& layout_;
    std::span<const std::vector<int>> buckets_of_;
    std::span<const int> positions_;
    GatherLimits limits_;
    std::vector<GatherUse> uses_;
};

}  // namespace

GatherSchedule make_gather_schedule(const FlatLayout& layout,
                                    std::span<const std::vector<int>> buckets_of,
                                    std::span<const int> positions, const GatherLimits& limits) {
    return Scheduler(layout, buckets_of, positions, limits).make();
}

namespace {

// Gives each gathered bucket a separate buffer.
void keep_apart(const FlatLayout& layout, StepGathers& gathers) {
    std::map<int, int> buffer_of;
    gathers.buffer_numel.clear();
    const auto place = [&](GatherSchedule& schedule) {
        for (GatherUse& use : schedule.uses) {
            const auto [found, fresh] =
                buffer_of.try_emplace(use.bucket, static_cast<int>(gathers.buffer_numel.size()));
            if (fresh) gathers.buffer_numel.push_back(layout.buckets[use.bucket].numel);
            use.buffer = found->second;
        }
    };
    for (PartGathers& part : gathers.parts)
        for (GatherSchedule* schedule : {&part.forward, &part.backward, &part.weight})
            place(*schedule);
}

}  // namespace

StepGathers make_step_gathers(const ModelInfo& model, const FlatLayout& layout,
                              std::span<const std::vector<int>> buckets_of,
                              std::span<const RecomputeGroup> groups,
                              const StepPlanOptions& options) {
    StepGathers gathers;
    GatherLimits limits = options.gather;
    // Buckets that are kept are gathered ahead as far as the prefetch limit allows. The live limit
    // does not apply to them.
    if (options.keeps_gathered()) limits.live_numel_max = std::numeric_limits<int64_t>::max();
    const auto schedule = [&](std::span<const int> positions) {
        GatherSchedule made = make_gather_schedule(layout, buckets_of, positions, limits);
        std::vector<int64_t>& buffers = gathers.buffer_numel;
        buffers.resize(std::max(buffers.size(), made.buffer_numel.size()), 0);
        for (size_t k = 0; k < made.buffer_numel.size(); ++k)
            buffers[k] = std::max(buffers[k], made.buffer_numel[k]);
        return made;
    };
    for (const StagePart& part : parts_of(options.stage_work, model.segments.size())) {
        const SegmentRange& range = part.segments;
        PartGathers& made = gathers.parts.emplace_back();
        const std::vector<int> positions = compute_positions(model, groups, range);
        const std::span<const int> all(positions);
        if (!options.stage_work.in_pipeline()) {
            made.forward = schedule(all);
            continue;
        }
        const auto forwards = static_cast<size_t>(range.end - range.begin);
        made.forward = schedule(all.first(forwards));
        made.backward = schedule(all.subspan(forwards));
        std::vector<int> weights;
        for (int s = range.end; s-- > range.begin;)
            if (model.segments[s].backward) weights.push_back(s);
        made.weight = schedule(weights);
    }
    if (options.keeps_gathered()) keep_apart(layout, gathers);
    return gathers;
}

}  // namespace dslaunch::plan
