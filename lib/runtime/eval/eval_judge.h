// The judge of a run's evaluations: which evaluation is the best so far, and whether the run ends
// early because too many evaluations in a row gained too little. All ranks have the same results,
// so all ranks judge equally. Data path: held-out loss -> [here] -> trainer, manifest. Pure; one
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/kinds/eval_metric.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::runtime {

// The rules by which evaluations are judged.
struct EvalRules {
    EvalMetric metric = EvalMetric::kLoss;
    // The run ends after this many evaluations in a row without a gain; 0 means never.
    int64_t patience = 0;
    // A metric counts as a gain if it is better than the best earlier value by more than this
    // number.
    double least_gain = 0;
};

// The judge's answer to one evaluation.
struct Verdict {
    bool is_best = false;  // better than all earlier evaluations
    bool ends = false;     // the run ends now
};

// Judges evaluations; see the top of this file.
class EvalJudge {
  public:
    // RECORD is the run's record so far. If it has values of a metric other than the metric in
    // RULES, these values are dropped.
    explicit EvalJudge(const EvalRules& rules, storage::EvalRecord record = {});

    // Judges VALUE, the metric after STEP, and notes it in the record. A NaN is neither best nor a
    // gain. A value that is better by at most the least gain becomes the best, but counts as an
    // evaluation without a gain, as in transformers. REQUIRES: STEP is above the record's step.
    Verdict judge(int64_t step, double value);

    // Returns true if the evaluation after STEP is in the record.
    [[nodiscard]] bool has_judged(int64_t step) const { return record_.step >= step; }
    // Returns true if the record so far ends the run, without a further evaluation.
    [[nodiscard]] bool is_over() const {
        return rules_.patience > 0 && record_.without_gain >= rules_.patience;
    }
    [[nodiscard]] EvalMetric metric() const { return rules_.metric; }
    [[nodiscard]] const storage::EvalRecord& record() const { return record_; }
    // Returns a text like "eval_loss did not improve in 3 evaluations; the best was 2.1034 after
    // step 25". REQUIRES: is_over().
    [[nodiscard]] std::string why_over() const;

  private:
    EvalRules rules_;
    storage::EvalRecord record_;
};

}  // namespace dslaunch::runtime
