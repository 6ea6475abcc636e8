#include "runtime/train/activity.h"

#include <fmt/core.h>

#include "base/terminal/moving_line.h"

namespace dslaunch::runtime {

void Activity::begin(std::string_view what) {
    const std::lock_guard lock(mutex_);
    what_ = what;
    part_began_ = clock_.now();
}

std::string Activity::text() const {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    if (what_.empty() || now - began_ < kShownAfter) return {};
    return fmt::format("{}  {}", what_, time_text(to_milliseconds(now - part_began_) / 1e3));
}

}  // namespace dslaunch::runtime
