#include "launch/supervise/restart_rules.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::launch {

std::chrono::milliseconds restart_delay(int failures_in_a_row) {
    if (failures_in_a_row <= 0) return std::chrono::milliseconds(0);
    const int64_t full = int64_t{1000} << std::min(failures_in_a_row - 1, 10);
    return std::chrono::milliseconds(std::min<int64_t>(full, 30'000));
}

RestartVerdict decide_restart(const EndedAttempt& attempt) {
    if (!attempt.may_restart || attempt.restarts >= attempt.restarts_max)
        return RestartVerdict::kEnd;
    if (attempt.target_kind != TargetKind::kModel) return RestartVerdict::kRestart;
    const auto code = static_cast<ExitCode>(attempt.exit_code);
    const bool mistake =
        code == ExitCode::kUsage || code == ExitCode::kConfig || code == ExitCode::kInput;
    return mistake ? RestartVerdict::kSameMistake : RestartVerdict::kRestart;
}

std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                const NodeCounts& range, const HostsFit& fits) {
    DSL_CHECK(range.min >= 1 && range.min <= range.max, "the range of nodes {} to {} is not valid",
              range.min, range.max);
    std::vector<size_t> chosen;
    for (size_t i = 0; i < is_bad.size(); ++i) {
        if (!is_bad[i] && chosen.size() < static_cast<size_t>(range.max)) chosen.push_back(i);
    }
    for (; chosen.size() >= static_cast<size_t>(range.min); chosen.pop_back())
        if (!fits || fits(chosen)) return chosen;
    return std::nullopt;
}

std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                const ElasticRules& rules) {
    if (!rules.fits) return choose_hosts(is_bad, rules.nodes);
    return choose_hosts(is_bad, rules.nodes, [&](const std::vector<size_t>& hosts) {
        return rules.fits(world_size_of(rules.plan(hosts)));
    });
}

}  // namespace dslaunch::launch
