#include "runtime/train/job_clock.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace dslaunch::runtime {

namespace {

using WallClock = std::chrono::system_clock;
// The time kept for the last evaluation, the weights and the exit: a tenth of the job's, at most
// this.
constexpr std::chrono::seconds kFarewellMax{30};

}  // namespace

JobClock::JobClock(int64_t limit_s, WallClock::time_point start) {
    WallClock::time_point end = start + std::chrono::seconds(limit_s);
    if (limit_s == 0) {
        const char* const text = std::getenv("SLURM_JOB_END_TIME");
        const std::optional<int64_t> epoch_s = text ? parse_int(text) : std::nullopt;
        if (!epoch_s) return;
        end = WallClock::time_point(std::chrono::seconds(*epoch_s));
    }
    end_ = end - std::min<WallClock::duration>(kFarewellMax, (end - start) / 10);
}

bool JobClock::is_over(Duration needed) const {
    return end_ &&
           WallClock::now() + std::chrono::duration_cast<WallClock::duration>(needed) > *end_;
}

}  // namespace dslaunch::runtime
