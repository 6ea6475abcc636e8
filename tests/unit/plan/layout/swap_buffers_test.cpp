#include "plan/layout/swap_buffers.h"

#include <map>
#include <set>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns the number of turns whose chunks stay in memory from step to step, because their buffer
// is their own.
int64_t staying(const std::vector<int>& dealt) {
    std::map<int, int> turns;
    for (const int buffer : dealt) ++turns[buffer];
    int64_t alone = 0;
    for (const auto& [buffer, count] : turns) alone += count == 1 ? 1 : 0;
    return alone;
}

}  // namespace

TEST_CASE("turns go round all buffers under FIFO and LRU") {
    for (const EvictionRule rule : {EvictionRule::kFifo, EvictionRule::kLru}) {
        CHECK(deal_buffers(7, 3, rule) == std::vector<int>{0, 1, 2, 0, 1, 2, 0});
        CHECK(deal_buffers(3, 8, rule) == std::vector<int>{0, 1, 2});
        CHECK(deal_buffers(0, 0, rule).empty());
    }
}

TEST_CASE(
    "under LFU four buffers take turns and the others keep a chunk each, spread over a step") {
    // 8 turns, 6 buffers: 4 in turn, the chunks of turns 3 and 7 stay.
    CHECK(deal_buffers(8, 6, EvictionRule::kLfu) == std::vector<int>{0, 1, 2, 4, 3, 0, 1, 5});
    CHECK(deal_buffers(7, 3, EvictionRule::kLfu) == deal_buffers(7, 3, EvictionRule::kFifo));
    CHECK(deal_buffers(5, 5, EvictionRule::kLfu) == deal_buffers(5, 5, EvictionRule::kFifo));
}

TEST_CASE("every buffer is used, and as many chunks stay as the rule says") {
    for (int64_t turns = 1; turns < 40; ++turns)
        for (int64_t buffers = 1; buffers < 45; ++buffers)
            for (const EvictionRule rule : {EvictionRule::kFifo, EvictionRule::kLfu}) {
                CAPTURE(turns, buffers, rule);
                const std::vector<int> dealt = deal_buffers(turns, buffers, rule);
                const std::set<int> used(dealt.begin(), dealt.end());
                const int64_t held = std::min(turns, buffers);
                REQUIRE(std::ssize(dealt) == turns);
                REQUIRE(std::ssize(used) == held);
                REQUIRE(*used.begin() == 0);
                REQUIRE(*used.rbegin() == held - 1);
                REQUIRE(passing_turns(turns, buffers, rule) == turns - staying(dealt));
                if (rule == EvictionRule::kLfu && turns >= held + 4 && buffers > 4)
                    REQUIRE(staying(dealt) == buffers - 4);
            }
}

}  // namespace dslaunch
