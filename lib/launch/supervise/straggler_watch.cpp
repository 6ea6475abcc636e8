#include "launch/supervise/straggler_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/median.h"

namespace dslaunch::launch {

namespace {

double milliseconds_of(std::chrono::duration<double, std::milli> time) {
    return time.count();
}

}  // namespace

void StragglerWatch::mark(const std::vector<RankRecord>& ranks) {
    marks_.clear();
    for (const RankRecord& rank : ranks) {
        marks_.push_back({rank.heartbeat->steps_done(), rank.heartbeat->lanes, rank.heard_at});
    }
}

std::vector<StragglerWatch::Work> StragglerWatch::works(
    const std::vector<RankRecord>& ranks) const {
    std::map<std::string, std::vector<Work>> by_lane;
    for (size_t i = 0; i < ranks.size(); ++i) {
        const Mark& before = marks_[i];
        const double steps = ranks[i].heartbeat->steps_done() - before.steps;
        for (const LaneTime& lane : ranks[i].heartbeat->lanes) {
            const auto same = std::ranges::find(before.lanes, lane.lane, &LaneTime::lane);
            const std::chrono::nanoseconds busy =
                lane.busy - (same == before.lanes.end() ? std::chrono::nanoseconds(0) : same->busy);
            by_lane[lane.lane].push_back({i, lane.lane, milliseconds_of(busy) / steps, 0,
                                          milliseconds_of(ranks[i].heard_at - before.at) / steps});
        }
    }
    std::vector<Work> all;
    for (auto& [lane, works] : by_lane) {
        if (works.size() < 2) continue;  // no rank to compare with
        std::vector<double> times_ms;
        for (const Work& work : works) times_ms.push_back(work.ms);
        const double median_ms = median_of(std::move(times_ms), Middle::kLower);
        for (Work& work : works) {
            work.median_ms = median_ms;
            all.push_back(work);
        }
    }
    return all;
}

std::vector<std::string> StragglerWatch::compare(const std::vector<RankRecord>& ranks) {
    const std::vector<Work> all = works(ranks);
    const auto worst = std::ranges::max_element(all, {}, &Work::excess_ms);
    std::vector<std::string> lines;
    if (slow_) {
        const auto now = std::ranges::find_if(all, [&](const Work& work) {
            return work.rank == slow_->rank && work.lane == slow_->lane;
        });
        const bool is_still_slow = now != all.end() && now->stands_out(kStragglerEndPart);
        // A different rank becomes the straggler only if its excess is more than twice as large.
        const bool is_worst = is_still_slow && worst->excess_ms() <= 2 * now->excess_ms();
        if (is_worst) return lines;
        const RankRecord& rank = ranks[slow_->rank];
        lines.push_back(fmt::format(
            "dslaunch: straggler: rank {} on {}, which was slow in its {} lane since step {:.0f}, "
            "{} step {:.0f}",
            rank.rank, rank.host, slow_->lane, slow_->since_step,
            is_still_slow ? "is no longer the slowest at" : "is as fast as the others again at",
            rank.heartbeat->steps_done()));
        slow_.reset();
    }
    if (worst == all.end() || !worst->stands_out(1)) return lines;
    const RankRecord& rank = ranks[worst->rank];
    const Mark& before = marks_[worst->rank];
    slow_ = Slow{worst->rank, worst->lane, std::max(1.0, before.steps)};
    lines.push_back(fmt::format(
        "dslaunch: straggler: rank {} on {} has worked {:.1f} ms per step in its {} lane since "
        "step {:.0f}, but the median rank works {:.1f} ms; the straggler takes {:.0f} % longer, "
        "which is {:.0f} % of the step (measured over {:.0f} steps)",
        rank.rank, rank.host, worst->ms, worst->lane, slow_->since_step, worst->median_ms,
        100.0 * worst->excess_ms() / std::max(worst->median_ms, 1e-3),
        100.0 * worst->excess_ms() / worst->step_ms, rank.heartbeat->steps_done() - before.steps));
    return lines;
}

// Returns true if every rank has done enough steps since the last call of mark().
bool StragglerWatch::is_time(const std::vector<RankRecord>& ranks) const {
    double least = static_cast<double>(interval_steps_);
    std::chrono::steady_clock::duration longest{0};
    for (size_t i = 0; i < ranks.size(); ++i) {
        least = std::min(least, ranks[i].heartbeat->steps_done() - marks_[i].steps);
        longest = std::max(longest, ranks[i].heard_at - marks_[i].at);
    }
    return least >= static_cast<double>(interval_steps_) ||
           (longest >= kStragglerTimeMax && least >= kStragglerStepsMin);
}

std::vector<std::string> StragglerWatch::look(const std::vector<RankRecord>& ranks) {
    const bool measured = std::all_of(ranks.begin(), ranks.end(), [](const RankRecord& rank) {
        return rank.heartbeat && !rank.heartbeat->lanes.empty();
    });
    if (interval_steps_ <= 0 || ranks.size() < 2 || !measured) return {};
    // If a rank has done fewer steps than before, it has started again. Then the earlier
    // measurements are dropped.
    for (size_t i = 0; i < marks_.size(); ++i) {
        if (ranks[i].heartbeat->steps_done() >= marks_[i].steps) continue;
        marks_.clear();
        slow_.reset();
    }
    if (marks_.empty()) {
        mark(ranks);
        return {};
    }
    if (!is_time(ranks)) return {};
    std::vector<std::string> lines = compare(ranks);
    mark(ranks);
    return lines;
}

}  // namespace dslaunch::launch
