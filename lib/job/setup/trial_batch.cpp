#include "job/setup/trial_batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "graph/lower/target_count.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/models/text_model.h"
#include "storage/files/input_file.h"

namespace dslaunch::job {

namespace {

// Returns the number of different tokens that the model accepts; 1 if it is not known.
int64_t vocabulary(const JobSetup& setup) {
    constexpr int64_t kNotKnown = std::numeric_limits<int64_t>::max();
    int64_t rows = setup.info.loss_classes > 0 ? setup.info.loss_classes : kNotKnown;
    for (const graph::ArgumentLimit& limit :
         graph::argument_limits(setup.segmented->lowered(), *setup.model))
        rows = std::min(rows, limit.rows);
    return rows == kNotKnown ? 1 : rows;
}

// Returns the first ROWS samples. If these samples contain no target for the loss, returns the next
// ROWS samples that contain one, because the mean loss over no targets is not a number.
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

// The largest number of tokens that is chosen automatically; it is TRL's max_length. The memory of
// a pass grows with it.
constexpr int64_t kTokensMax = 1024;

// Returns the sequence length that the program was exported for; 0 if it accepts any length, or if
// the model is not an exported program.
int64_t exported_length(const JobSetup& setup) {
    if (setup.segmented->arguments().empty()) return 0;
    const auto& sizes = setup.model->argument_sizes();
    const auto first = sizes.find(setup.segmented->arguments().front());
    if (first == sizes.end() || first->second.size() != 2) return 0;
    return std::max<int64_t>(first->second[1], 0);
}

// Returns the largest context for which the token file contains a sample; 0 if it is not known.
int64_t longest_in_file(const config::DataConfig& data) {
    std::error_code unreadable;
    const auto bytes = std::filesystem::file_size(data.train_path, unreadable);
    if (unreadable) return 0;
    return static_cast<int64_t>(bytes) / dtype_bytes(data.token_dtype.value_or(DType::kU16)) - 1;
}

}  // namespace

std::vector<c10::IValue> trial_batch(const JobSetup& setup, TrialTokens tokens) {
    if (!setup.estimate.empty())
        fail(ExitCode::kSetup,
             "{}, so only a plan without --forecast, --search, --stages, --tensor and --sequence "
             "can be made: leave these out, or give a smaller --context or "
             "train_micro_batch_size_per_gpu",
             setup.estimate);
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

ContextChoice choose_context(JobSetup& setup, bool plan_only) {
    const config::DataConfig& data = setup.config().data;
    const bool has_file = !data.train_path.empty();
    if (data.context > 0 || (has_file ? storage::is_row_file(data.train_path) : !plan_only))
        return {};
    if (const int64_t exported = exported_length(setup); exported > 0)
        return {exported, {}, "the program was exported for this length"};
    const int64_t positions = graph::longest_sequence(setup.model->module());
    if (positions <= 0) return {};
    ContextChoice choice{positions, {}, "all positions of the model"};
    if (positions > kTokensMax)
        choice = {kTokensMax,
                  {},
                  fmt::format("the model has {} positions, but at most {} are used by default",
                              positions, kTokensMax)};
    const int64_t in_file = has_file ? longest_in_file(data) : choice.value;
    if (in_file > 0 && in_file < choice.value) choice = {in_file, {}, "the whole file"};
    return choice;
}

}  // namespace dslaunch::job
