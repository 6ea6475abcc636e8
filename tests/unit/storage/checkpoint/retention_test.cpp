// Retention over random histories: it never takes the last good or the last verified checkpoint.
#include <algorithm>
#include <random>

#include "storage/checkpoint/checkpoint_store.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

bool good(const StoredCheckpoint& each) {
    return each.is_complete && each.is_finite;
}

// Returns the newest of ALL for which WANTED returns true; "" if there is none.
template <typename Wanted>
std::string newest(const std::vector<StoredCheckpoint>& all, const Wanted& wanted) {
    const StoredCheckpoint* found = nullptr;
    for (const StoredCheckpoint& each : all)
        if (wanted(each) && (found == nullptr || each.step > found->step)) found = &each;
    return found == nullptr ? "" : found->folder;
}

struct History {
    explicit History(uint64_t seed) : random(seed), keep(static_cast<int64_t>(random() % 4)) {}

    StoredCheckpoint& any() { return all[random() % all.size()]; }

    // Makes one event: a save that ends well, with a NaN or not at all; damage; a reader.
    void happen() {
        const uint64_t what = random() % 10;
        if (all.empty() || what < 5) {
            step += 1 + static_cast<int64_t>(random() % 3);
            const std::string folder = "step-" + std::to_string(step);
            all.push_back({folder, step, {}, what != 0, what > 1, false, ""});
            all.back().is_finite = all.back().is_finite && all.back().is_complete;
        } else if (what < 7) {
            StoredCheckpoint& each = any();
            each.is_complete = each.is_finite = each.is_verified = false;
        } else {
            StoredCheckpoint& each = any();
            each.is_verified = each.is_complete;
        }
        std::shuffle(all.begin(), all.end(), random);
    }

    // Returns "" or the rule that is broken.
    std::string retain() {
        const std::vector<StoredCheckpoint> before = all;
        const auto removed = checkpoints_to_remove(all, keep);
        const auto goes = [&](const std::string& folder) {
            return std::find(removed.begin(), removed.end(), folder) != removed.end();
        };
        if (keep == 0 && !removed.empty()) return "keeping all removed something";
        const std::string last_good = newest(before, good);
        const std::string last_verified = newest(
            before, [](const StoredCheckpoint& each) { return good(each) && each.is_verified; });
        if (!last_good.empty() && goes(last_good)) return "the last good one went";
        if (!last_verified.empty() && goes(last_verified)) return "the last verified one went";
        std::erase_if(all, [&](const StoredCheckpoint& each) { return goes(each.folder); });
        if (all.size() + removed.size() != before.size()) return "one went twice, or none of these";
        const auto count = std::count_if(all.begin(), all.end(), good);
        const auto count_before = std::count_if(before.begin(), before.end(), good);
        if (keep == 0) return "";
        if (count < std::min<int64_t>(keep, count_before)) return "fewer than KEEP are left";
        if (count > keep + 1) return "more than KEEP and the verified one are left";
        for (const StoredCheckpoint& each : before)
            if (!good(each)) {
                const bool newer = std::any_of(before.begin(), before.end(), [&](const auto& one) {
                    return good(one) && one.step > each.step;
                });
                if (newer != goes(each.folder))
                    return "a bad one goes when a newer good one is there";
            }
        return "";
    }

    std::mt19937_64 random;
    int64_t keep;
    int64_t step = 0;
    std::vector<StoredCheckpoint> all;
};

}  // namespace

TEST_CASE("retention keeps the last good and the last verified one in 100,000 histories") {
    int64_t removals_count = 0;
    for (uint64_t seed = 0; seed < 100'000; ++seed) {
        History history(seed);
        for (int i = 0; i < 12; ++i) {
            history.happen();
            const size_t before = history.all.size();
            const std::string broken = history.retain();
            removals_count += static_cast<int64_t>(before - history.all.size());
            if (broken.empty()) continue;
            FAIL("seed " << seed << ": " << broken);
        }
    }
    CHECK(removals_count > 100'000);
}
