#include "plan/layout/swap_buffers.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::plan {

namespace {

// Returns the number of buffers that are shared by several turns.
int64_t shared_buffers(int64_t turns, int64_t buffers, EvictionRule rule) {
    DSL_CHECK(buffers > 0 || turns == 0, "{} buffers cannot serve {} turns", buffers, turns);
    const bool keeps = rule == EvictionRule::kLfu && turns > buffers;
    return std::min(keeps ? std::min(buffers, kLfuPassingBuffers) : buffers, turns);
}

}  // namespace

std::vector<int> deal_buffers(int64_t turns, int64_t buffers, EvictionRule rule) {
    const int64_t shared = shared_buffers(turns, buffers, rule);
    const int64_t own = std::min(buffers, turns) - shared;
    std::vector<int> dealt;
    int64_t passing = 0, staying = 0;
    for (int64_t t = 0; t < turns; ++t) {
        const bool stays = (t + 1) * own / turns > t * own / turns;
        const int64_t buffer = stays ? shared + staying++ : passing++ % shared;
        dealt.push_back(static_cast<int>(buffer));
    }
    return dealt;
}

int64_t passing_turns(int64_t turns, int64_t buffers, EvictionRule rule) {
    const int64_t shared = shared_buffers(turns, buffers, rule);
    const int64_t dealt = turns - (std::min(buffers, turns) - shared);
    // If a shared buffer has only one turn, its chunk stays in the buffer and is not counted.
    return dealt - std::max<int64_t>(0, std::min(dealt, 2 * shared - dealt));
}

}  // namespace dslaunch::plan
