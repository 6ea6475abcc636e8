#include "launch/restart.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

std::chrono::milliseconds restart_delay(int failures_in_a_row) {
    if (failures_in_a_row <= 0) return std::chrono::milliseconds(0);
    const int64_t full = int64_t{1000} << std::min(failures_in_a_row - 1, 10);
    return std::chrono::milliseconds(std::min<int64_t>(full, 30'000));
}

bool may_help(TargetKind kind, int exit_code) {
    if (kind != TargetKind::kTorchScript) return true;
    const auto code = static_cast<ExitCode>(exit_code);
    return code != ExitCode::kUsage && code != ExitCode::kConfig && code != ExitCode::kInput;
}

std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                const NodeRange& range) {
    DSL_CHECK(range.min >= 1 && range.min <= range.max, "nodes from {} to {}", range.min,
              range.max);
    std::vector<size_t> chosen;
    for (size_t i = 0; i < is_bad.size(); ++i) {
        if (!is_bad[i] && chosen.size() < static_cast<size_t>(range.max)) chosen.push_back(i);
    }
    if (chosen.size() < static_cast<size_t>(range.min)) return std::nullopt;
    return chosen;
}

}  // namespace dslaunch
