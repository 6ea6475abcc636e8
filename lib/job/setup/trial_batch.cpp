#include "job/setup/trial_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <limits>

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

}  // namespace

std::vector<c10::IValue> trial_batch(const JobSetup& setup, TrialTokens tokens) {
    const int64_t rows = setup.config().batch.micro_rows;
    if (setup.data) {
        const runtime::DataSource& train = setup.data->train;
        std::vector<int64_t> samples;
        for (int64_t row = 0; row < rows; ++row) samples.push_back(row % train.rows());
        return train.batch(samples);
    }
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
