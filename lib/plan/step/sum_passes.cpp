#include "plan/step/sum_passes.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/check.h"

namespace dslaunch::plan {

namespace {

// The buffers that take turns, if there are as many: one is added to, one read, one written, and
// one is ahead.
constexpr int64_t kBuffersInTurn = 4;

class Assignment {
  public:
    Assignment(SumPasses& passes, int64_t buffers_max) : passes_(passes) {
        std::map<int, int64_t> last;
        next_.assign(passes.uses.size(), kNever);
        for (int64_t i = 0; i < std::ssize(passes.uses); ++i) {
            const auto [at, first] = last.try_emplace(use(i).chunk, i);
            previous_.push_back(first ? -1 : at->second);
            if (!first) next_[at->second] = i;
            at->second = i;
        }
        passes.buffers = static_cast<int>(std::min<int64_t>(buffers_max, passes.chunks));
        last_use_.assign(static_cast<size_t>(passes.buffers), -1);
    }

    void run() {
        for (int64_t i = 0; i < std::ssize(passes_.uses); ++i) {
            const int64_t before = previous_[i];
            const auto held = before < 0 ? last_use_.end() : std::ranges::find(last_use_, before);
            const bool there = held != last_use_.end();
            const auto buffer = there ? held : choose(i);
            if (!there) {
                if (*buffer >= 0 && next_[*buffer] != kNever) use(*buffer).write = true;
                use(i).read = before >= 0;
            }
            use(i).buffer = static_cast<int>(buffer - last_use_.begin());
            *buffer = i;
        }
    }

  private:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

    [[nodiscard]] SumUse& use(int64_t i) { return passes_.uses[i]; }

    std::vector<int64_t>::iterator choose(int64_t i) {
        const auto first_update = static_cast<int64_t>(passes_.first_update());
        const int64_t in_turn = std::min<int64_t>(passes_.buffers, kBuffersInTurn);
        auto best = last_use_.end();
        const auto needed = [&](int64_t used) { return used < 0 ? kNever : next_[used]; };
        for (auto buffer = last_use_.begin(); buffer != last_use_.end(); ++buffer) {
            // Updates are read ahead by as many as there are buffers.
            const bool may_go = i < first_update
                                    ? *buffer <= i - in_turn
                                    : *buffer < first_update || *buffer <= i - passes_.buffers;
            if (*buffer >= 0 && !may_go) continue;
            const bool better = best == last_use_.end() || needed(*buffer) > needed(*best) ||
                                (needed(*buffer) == needed(*best) && *buffer < *best);
            if (better) best = buffer;
        }
        DSL_CHECK(best != last_use_.end(), "no buffer for use {} of the sums", i);
        return best;
    }

    SumPasses& passes_;
    std::vector<int64_t> previous_;  // by use, the use before of the same chunk; -1: none
    std::vector<int64_t> next_;
    std::vector<int64_t> last_use_;  // by buffer; -1: none
};

}  // namespace

SumPasses make_sum_passes(std::span<const int> added, std::span<const int> updated,
                          int64_t buffers_max) {
    SumPasses passes;
    passes.chunks = static_cast<int>(updated.size());
    for (const int c : added) passes.uses.push_back({c});
    for (const int c : updated) passes.uses.push_back({c});
    Assignment(passes, buffers_max).run();
    return passes;
}

}  // namespace dslaunch::plan
