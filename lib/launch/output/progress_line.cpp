#include "launch/output/progress_line.h"

#include <fmt/format.h>

#include <utility>

#include "base/terminal/moving_line.h"
#include "base/text.h"

namespace dslaunch::launch {

ProgressLine::ProgressLine(const JobSpec& spec, StandardStreams& streams, const Clock* clock)
    : spec_(spec),
      streams_(streams),
      clock_(clock != nullptr ? *clock : system_clock_),
      told_at_(clock_.now()) {}

void ProgressLine::set_work(std::string_view what) {
    work_ = what;
    work_began_ = clock_.now();
    rank_progress_.clear();
}

void ProgressLine::set_rank_progress(std::string_view text) {
    work_.clear();
    rank_progress_ = text;
}

std::string ProgressLine::show() {
    if (spec_.log.quiet || spec_.target_kind != TargetKind::kModel) return "";
    const TimePoint now = clock_.now();
    const Duration worked = now - work_began_;
    std::string text = printable(rank_progress_);
    if (text.empty() && !work_.empty() && worked >= kShownAfter)
        text = fmt::format("{}  {}", work_, time_text(to_milliseconds(worked) / 1e3));
    if (streams_.moves()) {
        if (text == moving_) {
            streams_.show_moving_again();
        } else {
            moving_ = text;
            told_at_ = now;
            streams_.show_moving(text);
        }
        return "";
    }
    // If a line was shown until now, the launcher has just been moved to the background: erase it.
    if (!std::exchange(moving_, {}).empty()) streams_.show_moving({});
    if (text.empty() || now - told_at_ < kToldEach) return "";
    told_at_ = now;
    return text;
}

}  // namespace dslaunch::launch
