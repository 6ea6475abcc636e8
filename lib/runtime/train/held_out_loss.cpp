#include "runtime/train/held_out_loss.h"

#include <fmt/core.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "runtime/train/step_metrics.h"

namespace dslaunch::runtime {

namespace {

EvalRules rules_of(const config::RunConfig& config) {
    return {config.save.best.value_or(EvalMetric::kLoss), config.patience, config.patience_gain};
}

double value_of(EvalMetric metric, double loss, const graph::RewardMeans& rewards) {
    switch (metric) {
        case EvalMetric::kLoss:
            return loss;
        case EvalMetric::kChosen:
            return rewards.chosen;
        case EvalMetric::kRejected:
            return rewards.rejected;
        case EvalMetric::kMargins:
            return rewards.chosen - rewards.rejected;
        case EvalMetric::kAccuracies:
            return rewards.accuracy;
    }
    DSL_CHECK(false, "unknown metric");
    return 0;
}

}  // namespace

HeldOutLoss::HeldOutLoss(const HeldOutParts& parts, const storage::EvalRecord& record)
    : parts_(parts), judge_(rules_of(*parts.config), record) {
    const storage::EvalRecord& known = judge_.record();
    if (judge_.metric() == EvalMetric::kLoss && known.best_step > 0)
        best_ = EvalPoint{known.best_step, known.best};
}

std::optional<double> HeldOutLoss::evaluate(int64_t step, int64_t updates, bool counts,
                                            const std::function<void(double share)>& tell) {
    running_ = true;
    verdict_ = {};
    parts_.state->meet();
    parts_.state->settle();
    parts_.evaluator->set_updates(updates);
    const EvalShare share = parts_.evaluator->run(tell);
    double sums[6] = {share.loss_sum,       share.weight,           share.samples,
                      share.rewards.chosen, share.rewards.rejected, share.rewards.accuracy};
    parts_.collectives->sum_ordered(sums);
    running_ = false;
    cut_short_ = share.cut_short;
    if (share.cut_short) return std::nullopt;
    if (sums[1] == 0)
        fail(ExitCode::kInput,
             "held-out data: all targets are ignored (-100), so there is no held-out loss");
    const double loss = sums[0] / sums[1];
    if (!std::isfinite(loss))
        fail(ExitCode::kDiverged,
             "the held-out loss at step {} is {}: training has diverged; lower the learning rate, "
             "or check the held-out data",
             step, loss);
    if (!best_ || loss < best_->loss) best_ = EvalPoint{step, loss};
    news_ = loss;
    const graph::RewardMeans rewards{sums[3] / sums[2], sums[4] / sums[2], sums[5] / sums[2]};
    if (counts) verdict_ = judge_.judge(step, value_of(judge_.metric(), loss, rewards));
    if (parts_.collectives->topology().rank() == 0) report(step, loss, sums[2], rewards);
    return loss;
}

void HeldOutLoss::report(int64_t step, double loss, double samples,
                         const graph::RewardMeans& rewards) const {
    JsonWriter json;
    json.begin_object().field("step", step).field("eval_loss", loss);
    json.field("eval_samples", static_cast<int64_t>(samples));
    if (parts_.config->loss.is_preference()) add_rewards(json, "eval_", rewards);
    const bool is_judged = has_choice() && step > 0 && judge_.record().step == step;
    if (is_judged) add_verdict(json);
    json.end_object();
    parts_.reporter->metrics(json.text());
    parts_.reporter->progress(fmt::format("step {}: held-out loss {:.4f} over {:.0f} samples{}",
                                          step, loss, samples, is_judged ? verdict_text() : ""));
}

void HeldOutLoss::add_verdict(JsonWriter& json) const {
    const storage::EvalRecord& record = judge_.record();
    json.field("eval_is_best", verdict_.is_best).field("eval_best_step", record.best_step);
    if (parts_.config->patience > 0) json.field("evals_without_gain", record.without_gain);
    if (verdict_.ends && record.step < parts_.config->steps)
        json.field("ended_early", judge_.why_over());
}

// Returns a text like "; best so far", or "; 2 of 3 evaluations without a gain".
std::string HeldOutLoss::verdict_text() const {
    const storage::EvalRecord& record = judge_.record();
    const int64_t patience = parts_.config->patience;
    std::string text = verdict_.is_best ? "; best so far" : "";
    if (patience > 0 && record.without_gain > 0)
        text += fmt::format("; {} of {} without a gain", record.without_gain,
                            counted(patience, "evaluation"));
    return text;
}

}  // namespace dslaunch::runtime
