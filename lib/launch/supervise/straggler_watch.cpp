#include "launch/supervise/straggler_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::launch {

void StragglerWatch::mark(const std::vector<RankRecord>& ranks) {
    marks_.clear();
    for (const RankRecord& rank : ranks) {
        marks_.push_back({rank.heartbeat->steps_done(), rank.heartbeat->lanes, rank.heard_at});
    }
}

std::optional<std::string> StragglerWatch::compare(const std::vector<RankRecord>& ranks) const {
    struct Worst {
        size_t rank = 0;
        std::string lane;
        double ms = 0, median_ms = 0;
    };
    std::optional<Worst> worst;
    for (size_t lane = 0; lane < marks_.front().lanes.size(); ++lane) {
        std::vector<double> times_ms;  // times of a step, by rank
        for (size_t i = 0; i < ranks.size(); ++i) {
            if (lane >= marks_[i].lanes.size() || lane >= ranks[i].heartbeat->lanes.size())
                return std::nullopt;
            const auto busy = ranks[i].heartbeat->lanes[lane].busy - marks_[i].lanes[lane].busy;
            const double steps = ranks[i].heartbeat->steps_done() - marks_[i].steps;
            times_ms.push_back(std::chrono::duration<double, std::milli>(busy).count() / steps);
        }
        const auto most = std::max_element(times_ms.begin(), times_ms.end());
        std::vector<double> sorted = times_ms;
        std::sort(sorted.begin(), sorted.end());
        const double median = sorted[(sorted.size() - 1) / 2];
        const Worst found{static_cast<size_t>(most - times_ms.begin()),
                          marks_.front().lanes[lane].lane, *most, median};
        if (!worst || found.ms - found.median_ms > worst->ms - worst->median_ms) worst = found;
    }
    if (!worst) return std::nullopt;
    const RankRecord& rank = ranks[worst->rank];
    const Mark& before = marks_[worst->rank];
    const double steps = rank.heartbeat->steps_done() - before.steps;
    const double step_ms =
        std::chrono::duration<double, std::milli>(rank.heard_at - before.at).count() / steps;
    const double excess_ms = worst->ms - worst->median_ms;
    if (excess_ms < kStragglerShareMin * worst->median_ms ||
        excess_ms < kStragglerStepShareMin * step_ms) {
        return std::nullopt;
    }
    return fmt::format(
        "dslaunch: straggler: rank {} on {} works {:.1f} ms per step in its {} lane, but the "
        "median rank works {:.1f} ms; the straggler takes {:.0f} % longer, which is {:.0f} % of "
        "the step (measured over {:.0f} steps)",
        rank.rank, rank.host, worst->ms, worst->lane, worst->median_ms,
        100.0 * excess_ms / std::max(worst->median_ms, 1e-3), 100.0 * excess_ms / step_ms, steps);
}

std::optional<std::string> StragglerWatch::look(const std::vector<RankRecord>& ranks) {
    const bool measured = std::all_of(ranks.begin(), ranks.end(), [](const RankRecord& rank) {
        return rank.heartbeat && !rank.heartbeat->lanes.empty();
    });
    if (interval_steps_ <= 0 || ranks.size() < 2 || !measured) return std::nullopt;
    // A rank that starts again counts its steps from 0.
    for (size_t i = 0; i < marks_.size(); ++i) {
        if (ranks[i].heartbeat->steps_done() < marks_[i].steps) marks_.clear();
    }
    if (marks_.empty()) {
        mark(ranks);
        return std::nullopt;
    }
    for (size_t i = 0; i < ranks.size(); ++i) {
        const double steps = ranks[i].heartbeat->steps_done() - marks_[i].steps;
        if (steps < static_cast<double>(interval_steps_)) return std::nullopt;
    }
    const auto line = compare(ranks);
    mark(ranks);
    return line;
}

}  // namespace dslaunch::launch
