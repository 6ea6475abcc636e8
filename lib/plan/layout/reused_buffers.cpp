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
        DSL_CHECK(u == 0 || uses[u - 1].begin <= use.begin, "uses of buffers are not in order");
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

}  // namespace dslaunch::plan
