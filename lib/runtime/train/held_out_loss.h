// The held-out loss of all ranks during a run: evaluates, lets the results be judged, reports them,
// and remembers the least loss. Data path: trainer -> [here] -> evaluator, reporter. Threads: the
// compute lane; any thread may ask is_running().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/text/json.h"
#include "config/run/run_config.h"
#include "runtime/comm/collectives.h"
#include "runtime/eval/eval_judge.h"
#include "runtime/eval/evaluator.h"
#include "runtime/state/stepping_state.h"
#include "runtime/train/reporter.h"

namespace dslaunch::runtime {

// The held-out loss after a step.
struct EvalPoint {
    int64_t step = 0;
    double loss = 0;
};

// The objects that evaluations need. They must outlive the HeldOutLoss.
struct HeldOutParts {
    Evaluator* evaluator = nullptr;
    SteppingState* state = nullptr;
    Collectives* collectives = nullptr;  // joins all ranks
    Reporter* reporter = nullptr;
    const config::RunConfig* config = nullptr;
};

// Evaluates; see the top of this file.
class HeldOutLoss {
  public:
    // RECORD is the run's record so far.
    HeldOutLoss(const HeldOutParts& parts, const storage::EvalRecord& record);

    // Computes the held-out loss after STEP steps, of which UPDATES changed the weights. All ranks
    // call it and get the same loss, or nullopt if the evaluation was cut short. If COUNTS is true,
    // judge() takes the loss into account. Rank 0 reports the loss. Calls TELL again and again with
    // the fraction that is done, from 0 to 1. Throws the errors of Evaluator::run, Error{kInput} if
    // no target counts, and Error{kDiverged} if the loss is not finite.
    [[nodiscard]] std::optional<double> evaluate(int64_t step, int64_t updates, bool counts,
                                                 const std::function<void(double share)>& tell);
    [[nodiscard]] const EvalJudge& judge() const { return judge_; }
    // Returns the verdict on the last evaluation. An evaluation that does not count is never the
    // best.
    [[nodiscard]] const Verdict& verdict() const { return verdict_; }
    // Returns true while evaluate() computes the loss. Any thread.
    [[nodiscard]] bool is_running() const { return running_.load(std::memory_order_relaxed); }
    // Returns true if the last evaluation ended early, because the run must save and end.
    [[nodiscard]] bool was_cut_short() const { return cut_short_; }
    // Returns the evaluation with the least loss, including evaluations that do not count; nullopt
    // before the first evaluation. After a resume, the only earlier evaluation that is known is the
    // best one that counted, and only if the metric is the loss.
    [[nodiscard]] const std::optional<EvalPoint>& best() const { return best_; }
    // Returns the newest loss on the first call after an evaluation; nullopt on further calls.
    [[nodiscard]] std::optional<double> take_news() { return std::exchange(news_, std::nullopt); }

  private:
    void report(int64_t step, double loss, double samples, const graph::RewardMeans& rewards) const;
    void add_verdict(JsonWriter& json) const;
    [[nodiscard]] std::string verdict_text() const;
    [[nodiscard]] bool has_choice() const {
        return parts_.config->save.best.has_value() || parts_.config->patience > 0;
    }

    HeldOutParts parts_;
    EvalJudge judge_;
    Verdict verdict_;
    std::atomic<bool> running_{false};
    bool cut_short_ = false;
    std::optional<double> news_;
    std::optional<EvalPoint> best_;
};

}  // namespace dslaunch::runtime
