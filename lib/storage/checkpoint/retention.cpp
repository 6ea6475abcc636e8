#include <algorithm>

#include "storage/checkpoint/checkpoint_store.h"

namespace dslaunch::storage {

std::vector<std::string> checkpoints_to_remove(const std::vector<StoredCheckpoint>& all,
                                               int64_t keep) {
    std::vector<std::string> removed;
    if (keep <= 0) return removed;
    std::vector<StoredCheckpoint> newest_first = all;
    std::stable_sort(
        newest_first.begin(), newest_first.end(),
        [](const StoredCheckpoint& a, const StoredCheckpoint& b) { return a.step > b.step; });
    // The newest KEEP good ones stay, and the newest verified one, however old it is. One that is
    // not good stays unless a newer one is good: it may be all that a run has, or may still grow.
    int64_t good_count = 0;
    bool verified = false;
    for (const StoredCheckpoint& each : newest_first) {
        const bool good = each.complete && each.finite;
        const bool stays =
            good ? good_count < keep || (each.verified && !verified) : good_count == 0;
        if (good) ++good_count;
        if (good && each.verified) verified = true;
        if (!stays) removed.push_back(each.folder);
    }
    return removed;
}

}  // namespace dslaunch::storage
