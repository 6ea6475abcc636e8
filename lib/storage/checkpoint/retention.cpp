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
    // Keeps the newest KEEP good checkpoints, and the newest verified one, however old it is.
    // Removes one that is not good only if a newer one is good: until then it may be all that a run
    // has, or may still be completed.
    int64_t good_count = 0;
    bool verified = false;
    for (const StoredCheckpoint& each : newest_first) {
        const bool good = each.is_complete && each.is_finite;
        const bool stays =
            good ? good_count < keep || (each.is_verified && !verified) : good_count == 0;
        if (good) ++good_count;
        if (good && each.is_verified) verified = true;
        if (!stays) removed.push_back(each.folder);
    }
    return removed;
}

}  // namespace dslaunch::storage
