// The best evaluation and the end of a run, for sequences of results with known answers.
#include "runtime/eval/eval_judge.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kInterval = 10;

// Returns a judge's answers, one letter for each evaluation: B for the best, `.` for another, and
// `!` after the one that ends the run.
std::string answers(EvalJudge& judge, const std::vector<double>& values) {
    std::string text;
    int64_t step = judge.record().step;
    for (const double value : values) {
        const Verdict verdict = judge.judge(step += kInterval, value);
        text += verdict.is_best ? 'B' : '.';
        if (verdict.ends) return text + '!';
    }
    return text;
}

struct Case {
    EvalRules rules;
    std::vector<double> values;
    std::string answers;
    int64_t best_step;
};

}  // namespace

TEST_CASE("evaluations are judged as their sequences say") {
    const EvalMetric loss = EvalMetric::kLoss, right = EvalMetric::kAccuracies;
    const std::vector<Case> cases = {
        {{loss, 0, 0}, {3, 2, 2.5, 1, 4}, "BB.B.", 40},
        {{loss, 2, 0}, {3, 2, 2.5, 2.1, 1}, "BB..!", 20},
        {{loss, 2, 0}, {3, 2, 2.5, 1, 1.5, 1.2}, "BB.B..!", 40},
        // Equal is not better, and the first of two equal ones stays the best.
        {{loss, 3, 0}, {2, 2, 2, 2}, "B...!", 10},
        {{loss, 1, 0}, {2, 2}, "B.!", 10},
        // A gain of at most the threshold also changes the best result, and the next gain is
        // measured from it, as in transformers' EarlyStoppingCallback.
        {{loss, 3, 0.007}, {1, 0.995, 0.99, 0.985}, "BBBB!", 40},
        {{loss, 2, 0.1}, {1, 0.95, 0.8, 0.75, 0.74}, "BBBBB!", 50},
        {{loss, 2, 0.1}, {1, 0.9375, 0.75, 0.5}, "BBBB", 40},
        {{right, 2, 0}, {0.5, 0.7, 0.6, 0.7}, "BB..!", 20},
        {{EvalMetric::kRejected, 0, 0}, {-1, -2, -1.5}, "BB.", 20},
        // A NaN is never the best, neither first nor later. A value after it may be.
        {{loss, 0, 0}, {kNan, 3, kNan, 2}, ".B.B", 40},
        {{loss, 2, 0}, {kNan, kNan}, "..!", 0},
        {{loss, 2, 0}, {1, kNan, kNan}, "B..!", 10},
        {{right, 0, 0}, {kNan, 0}, ".B", 20},
        {{loss, 0, 0}, {std::numeric_limits<double>::infinity(), 5}, "BB", 20},
    };
    for (const Case& each : cases) {
        EvalJudge judge(each.rules);
        CHECK(answers(judge, each.values) == each.answers);
        CHECK(judge.record().best_step == each.best_step);
        CHECK(judge.is_over() == each.answers.ends_with('!'));
    }
}

TEST_CASE("a judge that goes on from any record answers like one that never stopped") {
    const EvalRules rules{EvalMetric::kLoss, 3, 0.05};
    const std::vector<double> values = {3, 2.98, 2.5, kNan, 2.6, 2.4, 2.39, 2.38, 2.37};
    EvalJudge whole(rules);
    const std::string expected = answers(whole, values);
    CHECK(expected == "BBB..BBBB!");
    for (size_t cut = 0; cut <= values.size(); ++cut) {
        const auto middle = values.begin() + static_cast<ptrdiff_t>(cut);
        EvalJudge first(rules);
        std::string text = answers(first, {values.begin(), middle});
        EvalJudge second(rules, first.record());
        text += answers(second, {middle, values.end()});
        CHECK(text == expected);
        CHECK(second.record().best == whole.record().best);
        CHECK(second.record().without_gain == whole.record().without_gain);
    }
}

TEST_CASE("a record of another metric is forgotten, and more patience lets an ended run go on") {
    EvalJudge judge({EvalMetric::kLoss, 2, 0});
    CHECK(answers(judge, {1, 2, 3}) == "B..!");
    CHECK(judge.why_over() ==
          "eval_loss did not improve in 2 evaluations; the best was 1.0000 after step 10");
    CHECK(EvalJudge({EvalMetric::kLoss, 2, 0}, judge.record()).is_over());
    CHECK_FALSE(EvalJudge({EvalMetric::kLoss, 3, 0}, judge.record()).is_over());
    CHECK_FALSE(EvalJudge({EvalMetric::kLoss, 0, 0}, judge.record()).is_over());
    const EvalJudge other({EvalMetric::kMargins, 2, 0}, judge.record());
    CHECK_FALSE(other.is_over());
    CHECK_FALSE(other.has_judged(10));
    CHECK(judge.has_judged(30));
    CHECK_FALSE(judge.has_judged(40));
}

TEST_CASE("metrics are found by the names of other trainers") {
    CHECK(eval_metric_from_name("loss") == EvalMetric::kLoss);
    CHECK(eval_metric_from_name("EVAL_LOSS") == EvalMetric::kLoss);
    CHECK(eval_metric_from_name("rewards/accuracies") == EvalMetric::kAccuracies);
    CHECK(eval_metric_from_name("eval_rewards/margins") == EvalMetric::kMargins);
    CHECK(eval_metric_from_name("accuracy") == std::nullopt);
    for (size_t i = 0; i < kEvalMetricNames.size(); ++i)
        CHECK(eval_metric_from_name(kEvalMetricNames[i]) == static_cast<EvalMetric>(i));
}
