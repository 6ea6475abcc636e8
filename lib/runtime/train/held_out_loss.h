// The held-out loss of all ranks during a run: evaluates, reports the result, and remembers the
// best one. Data path: trainer -> [here] -> evaluator, reporter. Threads: the compute lane; any
// thread may ask is_running().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "runtime/comm/collectives.h"
#include "runtime/state/stepping_state.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/reporter.h"

namespace dslaunch::runtime {

// The held-out loss after a step.
struct EvalPoint {
    int64_t step = 0;
    double loss = 0;
};

// Evaluates; see the top of this file.
class HeldOutLoss {
  public:
    // All references must outlive this object. COLLECTIVES joins all ranks. ON_PAIRS: the loss is a
    // preference loss, whose rewards are reported too.
    HeldOutLoss(Evaluator& evaluator, SteppingState& state, Collectives& collectives,
                Reporter& reporter, bool on_pairs)
        : evaluator_(evaluator),
          state_(state),
          collectives_(collectives),
          reporter_(reporter),
          on_pairs_(on_pairs) {}

    // Returns the loss after STEP, the same on all ranks; nullopt if the evaluation was cut short.
    // Rank 0 reports it. Calls TELL with the share that is done. All ranks call it. Throws the
    // errors of Evaluator::run, Error{kInput} if no target counts, and Error{kDiverged} if the loss
    // is not finite.
    [[nodiscard]] std::optional<double> evaluate(int64_t step,
                                                 const std::function<void(double share)>& tell);
    // Returns true while evaluate() computes the loss. Any thread.
    [[nodiscard]] bool is_running() const { return running_.load(std::memory_order_relaxed); }
    // Returns true if the last evaluation ended early, because the run must save and end.
    [[nodiscard]] bool was_cut_short() const { return cut_short_; }
    // Returns the point with the least loss of this run; nullopt before the first evaluation.
    [[nodiscard]] const std::optional<EvalPoint>& best() const { return best_; }
    // Returns the newest loss once; nullopt until the next evaluation.
    [[nodiscard]] std::optional<double> take_news() { return std::exchange(news_, std::nullopt); }

  private:
    void report(int64_t step, double loss, double samples, const graph::RewardMeans& rewards) const;

    Evaluator& evaluator_;
    SteppingState& state_;
    Collectives& collectives_;
    Reporter& reporter_;
    bool on_pairs_;
    std::atomic<bool> running_{false};
    bool cut_short_ = false;
    std::optional<double> news_;
    std::optional<EvalPoint> best_;
};

}  // namespace dslaunch::runtime
