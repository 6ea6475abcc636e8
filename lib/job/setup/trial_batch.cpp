#include "job/setup/trial_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>

#include "graph/lower/target_count.h"
#include "graph/lowered/index_limits.h"

namespace dslaunch::job {

namespace {

// The number of different tokens that the model takes; 1 if nothing tells.
int64_t vocabulary(const JobSetup& setup) {
    constexpr int64_t kNotKnown = std::numeric_limits<int64_t>::max();
    int64_t rows = setup.info.loss_classes > 0 ? setup.info.loss_classes : kNotKnown;
    for (const graph::ArgumentLimit& limit :
         graph::argument_limits(setup.segmented->lowered(), *setup.model))
        rows = std::min(rows, limit.rows);
    return rows == kNotKnown ? 1 : rows;
}

// The first ROWS samples; the first so many after them that have a target, if those have none and
// it is known of a batch: the mean over no targets is no number to compare.
std::vector<c10::IValue> batch_with_targets(const JobSetup& setup, int64_t rows) {
    constexpr int64_t kTriesMax = 1000;
    const runtime::DataSource& train = setup.data->train;
    const auto batch_at = [&](int64_t first) {
        std::vector<int64_t> samples;
        for (int64_t row = 0; row < rows; ++row) samples.push_back((first + row) % train.rows());
        return train.batch(samples);
    };
    const graph::TargetCount* const targets = setup.segmented->lowered().targets.get();
    std::vector<c10::IValue> first = batch_at(0);
    if (targets == nullptr || targets->of(first) != 0) return first;
    for (int64_t i = 1; i < kTriesMax && i * rows < train.rows(); ++i) {
        std::vector<c10::IValue> batch = batch_at(i * rows);
        if (targets->of(batch) != 0) return batch;
    }
    return first;
}

}  // namespace

std::vector<c10::IValue> trial_batch(const JobSetup& setup, TrialTokens tokens) {
    const int64_t rows = setup.config().batch.micro_rows;
    if (setup.data) return batch_with_targets(setup, rows);
    const int64_t context = setup.config().data.context;
    at::Tensor values = at::zeros({rows, context}, at::kLong);
    if (tokens == TrialTokens::kSpread) {
        constexpr int64_t kStride = 7919;  // a prime
        values = (at::arange(rows * context, at::kLong) * kStride)
                     .remainder(vocabulary(setup))
                     .view({rows, -1});
    }
    return std::vector<c10::IValue>(setup.segmented->arguments().size(), values);
}

}  // namespace dslaunch::job
