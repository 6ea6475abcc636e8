#include "runtime/data/eval_plan.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::runtime {

EvalPlan::EvalPlan(const Options& options)
    : options_(options),
      batch_count_((options.sample_count + options.batch_rows - 1) / options.batch_rows) {
    DSL_CHECK(options.rank >= 0 && options.rank < options.ranks, "rank {} of {}", options.rank,
              options.ranks);
}

int64_t EvalPlan::round_count() const {
    return (batch_count_ + options_.ranks - 1) / options_.ranks;
}

EvalBatch EvalPlan::batch(int64_t round) const {
    DSL_CHECK(round >= 0 && round < round_count(), "round {} of {}", round, round_count());
    const int64_t index = round * options_.ranks + options_.rank;
    const int64_t first = std::min(index * options_.batch_rows, options_.sample_count);
    return {index, first, std::min(options_.batch_rows, options_.sample_count - first)};
}

}  // namespace dslaunch::runtime
