#include <algorithm>
#include <cmath>

#include "storage/checkpoint/checkpoint_store.h"

namespace dslaunch::storage {

std::vector<std::string> checkpoints_to_remove(const std::vector<StoredCheckpoint>& all,
                                               const Retention& keeps) {
    std::vector<std::string> removed;
    if (keeps.newest <= 0) return removed;
    std::vector<StoredCheckpoint> newest_first = all;
    std::stable_sort(
        newest_first.begin(), newest_first.end(),
        [](const StoredCheckpoint& a, const StoredCheckpoint& b) { return a.step > b.step; });
    // A checkpoint is good if it is complete and finite. Keeps the newest good checkpoints. Also
    // keeps the newest verified one and the best one, even if they are old. Removes a checkpoint
    // that is not good only if a newer one is good. Until then, it may be the only checkpoint of
    // the run, or a save may still complete it.
    int64_t good_count = 0;
    bool verified = false;
    for (const StoredCheckpoint& each : newest_first) {
        const bool good = each.is_complete && each.is_finite;
        const bool stays = good ? good_count < keeps.newest || (each.is_verified && !verified) ||
                                      (each.is_best && keeps.keeps_best)
                                : good_count == 0;
        if (good) ++good_count;
        if (good && each.is_verified) verified = true;
        if (!stays) removed.push_back(each.folder);
    }
    return removed;
}

void mark_best(std::vector<StoredCheckpoint>& all) {
    const auto counts = [](const StoredCheckpoint& each) {
        return each.is_complete && each.is_finite && each.evaluated &&
               !std::isnan(each.evaluated->value);
    };
    const StoredCheckpoint* newest = nullptr;
    for (StoredCheckpoint& each : all) {
        each.is_best = false;
        if (counts(each) && (newest == nullptr || each.step > newest->step)) newest = &each;
    }
    if (newest == nullptr) return;
    const EvalMetric metric = *newest->evaluated->metric;
    StoredCheckpoint* best = nullptr;
    for (StoredCheckpoint& each : all) {
        if (!counts(each) || each.judged_by != newest->judged_by) continue;
        const double value = each.evaluated->value;
        const bool leads = best == nullptr || is_better(metric, value, best->evaluated->value) ||
                           (value == best->evaluated->value && each.step < best->step);
        if (leads) best = &each;
    }
    best->is_best = true;
}

}  // namespace dslaunch::storage
