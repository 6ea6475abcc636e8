#include "runtime/train/held_out_loss.h"

#include <fmt/core.h>

#include <cmath>

#include "base/error.h"
#include "base/text/json.h"
#include "runtime/train/step_metrics.h"

namespace dslaunch::runtime {

std::optional<double> HeldOutLoss::evaluate(int64_t step,
                                            const std::function<void(double share)>& tell) {
    running_ = true;
    state_.meet();
    state_.settle();
    const EvalShare share = evaluator_.run(tell);
    double sums[6] = {share.loss_sum,       share.weight,           share.samples,
                      share.rewards.chosen, share.rewards.rejected, share.rewards.accuracy};
    collectives_.sum_ordered(sums);
    running_ = false;
    cut_short_ = share.cut_short;
    if (share.cut_short) return std::nullopt;
    if (sums[1] == 0)
        fail(ExitCode::kInput,
             "held-out data: no target counts (all are -100), so there is no held-out loss");
    const double loss = sums[0] / sums[1];
    if (!std::isfinite(loss))
        fail(ExitCode::kDiverged,
             "the held-out loss at step {} is {}: training has diverged; lower the learning rate, "
             "or look at the held-out data",
             step, loss);
    if (!best_ || loss < best_->loss) best_ = EvalPoint{step, loss};
    news_ = loss;
    if (collectives_.topology().rank() == 0)
        report(step, loss, sums[2], {sums[3] / sums[2], sums[4] / sums[2], sums[5] / sums[2]});
    return loss;
}

void HeldOutLoss::report(int64_t step, double loss, double samples,
                         const graph::RewardMeans& rewards) const {
    JsonWriter json;
    json.begin_object().field("step", step).field("eval_loss", loss);
    json.field("eval_samples", static_cast<int64_t>(samples));
    if (on_pairs_) add_rewards(json, "eval_", rewards);
    json.end_object();
    reporter_.metrics(json.text());
    reporter_.progress(
        fmt::format("step {}: held-out loss {:.4f} over {:.0f} samples", step, loss, samples));
}

}  // namespace dslaunch::runtime
