#include "job/process/job_clock.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "base/text.h"

namespace dslaunch::job {

namespace {

using WallClock = std::chrono::system_clock;
// For the last evaluation, the weights, and the way out: a tenth of the time, at most this.
constexpr std::chrono::seconds kFarewellMax{30};

}  // namespace

std::function<bool(Duration needed)> job_clock(int64_t limit_s, WallClock::time_point start) {
    auto end = start + std::chrono::seconds(limit_s);
    if (limit_s == 0) {
        const char* const text = std::getenv("SLURM_JOB_END_TIME");
        const std::optional<int64_t> epoch_s = text ? parse_int(text) : std::nullopt;
        if (!epoch_s) return {};
        end = WallClock::time_point(std::chrono::seconds(*epoch_s));
    }
    const auto farewell = std::min<WallClock::duration>(kFarewellMax, (end - start) / 10);
    return [end, farewell](Duration needed) {
        return WallClock::now() + std::chrono::duration_cast<WallClock::duration>(needed) +
                   farewell >
               end;
    };
}

}  // namespace dslaunch::job
