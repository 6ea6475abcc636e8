#include "runtime/eval/eval_judge.h"

#include <fmt/core.h>

#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch::runtime {

EvalJudge::EvalJudge(const EvalRules& rules, storage::EvalRecord record)
    : rules_(rules), record_(record) {
    if (record_.metric != rules_.metric) record_ = {.metric = rules_.metric};
}

Verdict EvalJudge::judge(int64_t step, double value) {
    DSL_CHECK(step > record_.step, "step {} does not come after step {}, which was evaluated last",
              step, record_.step);
    const bool is_first = record_.best_step == 0;
    const bool is_best =
        !std::isnan(value) && (is_first || is_better(rules_.metric, value, record_.best));
    const bool gains = is_best && (is_first || std::abs(value - record_.best) > rules_.least_gain);
    record_.step = step;
    record_.value = value;
    record_.without_gain = gains ? 0 : record_.without_gain + 1;
    if (is_best) {
        record_.best = value;
        record_.best_step = step;
    }
    return {is_best, is_over()};
}

std::string EvalJudge::why_over() const {
    const std::string gain =
        rules_.least_gain > 0 ? fmt::format(" by more than {}", rules_.least_gain) : "";
    const std::string best =
        record_.best_step == 0
            ? "all were NaN"
            : fmt::format("the best was {:.4f} after step {}", record_.best, record_.best_step);
    return fmt::format("{} did not improve{} in {}; {}", eval_metric_name(rules_.metric), gain,
                       counted(record_.without_gain, "evaluation"), best);
}

}  // namespace dslaunch::runtime
