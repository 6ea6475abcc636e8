#include "runtime/data/data_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "storage/files/input_file.h"
#include "storage/tokens/sample_order.h"

namespace dslaunch::runtime {
namespace {

constexpr int64_t kIgnoredTarget = -100;  // PyTorch's ignore_index, as in graph/lower/loss.cpp

std::shared_ptr<const Samples> open_samples(const std::string& path, const DataRequest& request) {
    DSL_CHECK(request.arguments.size() == request.argument_types.size(),
              "{} names were given for {} types", request.arguments.size(),
              request.argument_types.size());
    storage::require_data(path);
    return storage::is_row_file(path) ? open_row_samples(path, request)
                                      : open_token_samples(path, request);
}

// Checks that both files contain tokens, or that both contain rows.
void require_one_kind(const config::DataConfig& data) {
    const bool has_rows = storage::is_row_file(data.train_path);
    if (data.eval_path.empty() || has_rows == storage::is_row_file(data.eval_path)) return;
    const auto kind = [](bool rows) { return rows ? "rows of fixed length" : "tokens"; };
    fail(ExitCode::kInput,
         "the training data and the held-out data must be of one kind, but {} (--data) is a file "
         "of {}, and {} (--eval-data) a file of {}: give two files of one kind, or hold out a part "
         "of the training data with --set dslaunch.data.eval_fraction=0.05 instead of --eval-data",
         printable(data.train_path), kind(has_rows), printable(data.eval_path), kind(!has_rows));
}

std::string shape_text(const DataInput& input) {
    return fmt::format("{} [{}]", c10::toString(input.dtype), fmt::join(input.sample_shape, ", "));
}

// Checks that samples have the same form in both sets, since the same plan is used for both.
void check_same_inputs(const Samples& train, const Samples& eval) {
    for (size_t i = 0; i < train.inputs().size(); ++i) {
        const DataInput& expected = train.inputs()[i];
        const DataInput& found = eval.inputs()[i];
        if (expected == found) continue;
        fail(ExitCode::kInput,
             "{}: argument '{}' gets samples of {}, but {} when training on {}; held-out samples "
             "must have the type and shape of the training samples",
             eval.path(), found.argument, shape_text(found), shape_text(expected), train.path());
    }
}

DataSets split_one_file(const std::shared_ptr<const Samples>& file, double eval_fraction) {
    const storage::SampleSplit split = storage::split_samples(file->sample_count(), eval_fraction);
    DataSource train(file, 0, split.train);
    if (eval_fraction == 0) return {train, std::nullopt};
    if (split.eval == 0)
        fail(ExitCode::kInput,
             "{}: dslaunch.data.eval_fraction {} of {} samples holds out no sample; use {:.2g} or "
             "more, name a file in dslaunch.data.eval, or hold out nothing: --set "
             "dslaunch.data.eval_fraction=0",
             file->path(), eval_fraction, file->sample_count(),
             1.1 / static_cast<double>(file->sample_count()));
    if (split.train == 0)
        fail(ExitCode::kInput, "{}: dslaunch.data.eval_fraction {} leaves no sample to train on",
             file->path(), eval_fraction);
    return {train, DataSource(file, split.train, split.eval)};
}

}  // namespace

int64_t DataSource::tokens_read() const {
    if (tokens_per_sample() > 0 || inputs().empty()) return tokens_per_sample();
    const DataInput& first = inputs().front();
    const std::vector<int64_t>& shape = first.sample_shape;
    const bool is_text = first.dtype == c10::ScalarType::Long && !shape.empty() &&
                         shape.back() > 1 &&
                         (shape.size() == 1 || (shape.size() == 2 && shape.front() == 2));
    return is_text ? (shape.size() == 2 ? 2 : 1) * shape.back() : 0;
}

DataSource::DataSource(std::shared_ptr<const Samples> file, int64_t first, int64_t count)
    : file_(std::move(file)), first_(first), count_(count) {
    DSL_CHECK(first >= 0 && count >= 0 && first + count <= file_->sample_count(),
              "samples [{}, {}) do not exist among {} samples", first, first + count,
              file_->sample_count());
}

std::vector<c10::IValue> DataSource::batch(std::span<const int64_t> samples) const {
    for (const int64_t sample : samples)
        DSL_CHECK(sample >= 0 && sample < count_, "sample {} does not exist among {} samples",
                  sample, count_);
    return file_->batch(first_, samples);
}

void DataSource::check_indices(std::string_view argument, const IndexLimit& limit) const {
    const auto found = std::find_if(inputs().begin(), inputs().end(),
                                    [&](const auto& input) { return input.argument == argument; });
    DSL_CHECK(found != inputs().end(), "no argument '{}'", argument);
    file_->check_indices(static_cast<size_t>(found - inputs().begin()), limit);
}

void DataSource::check_documents(std::string_view argument) const {
    const auto found = std::ranges::find(inputs(), argument, &DataInput::argument);
    if (found != inputs().end())
        file_->check_documents(static_cast<size_t>(found - inputs().begin()));
}

bool DataSets::eval_has_its_own_file() const {
    return eval.has_value() && eval->path() != train.path();
}

void DataSets::check_vocabulary(int64_t vocabulary) const {
    train.check_vocabulary(vocabulary);
    if (eval_has_its_own_file()) eval->check_vocabulary(vocabulary);
}

void DataSets::check_indices(std::string_view argument, const IndexLimit& limit) const {
    train.check_indices(argument, limit);
    if (eval_has_its_own_file()) eval->check_indices(argument, limit);
}

void DataSets::check_documents(std::string_view argument) const {
    train.check_documents(argument);
    if (eval_has_its_own_file()) eval->check_documents(argument);
}

void DataSets::check_origin(const std::string& model, const std::string& adapter) const {
    train.check_origin(model, adapter);
    if (eval_has_its_own_file()) eval->check_origin(model, adapter);
}

void DataSets::check_labels(const DataRequest& request, int64_t classes) const {
    DSL_CHECK(request.has_target(), "no loss target");
    check_indices(request.arguments.back(),
                  {.count = classes, .also = kIgnoredTarget, .what = "class"});
}

std::vector<std::string> offered_names(const config::DataConfig& data) {
    if (!storage::is_row_file(data.train_path)) return {};
    std::vector<std::string> names;
    try {
        names = row_columns(data.train_path);
    } catch (const Error&) {
        return {};
    }
    for (const auto& [argument, column] : data.columns) names.push_back(argument);
    return names;
}

DataSets open_data(const DataRequest& request) {
    const config::DataConfig& data = request.data;
    DSL_CHECK(data.eval_path.empty() || data.eval_fraction == 0, "eval and eval_fraction");
    if (data.train_path.empty())
        fail(ExitCode::kInput,
             "no training data: name a file in dslaunch.data.train or with --data");
    require_one_kind(data);
    auto train = open_samples(data.train_path, request);
    if (data.eval_path.empty()) return split_one_file(train, data.eval_fraction);
    auto eval = open_samples(data.eval_path, request);
    check_same_inputs(*train, *eval);
    const int64_t train_count = train->sample_count();
    const int64_t eval_count = eval->sample_count();
    return {DataSource(std::move(train), 0, train_count),
            DataSource(std::move(eval), 0, eval_count)};
}

void check_arguments_are_tensors(const std::string& path, const DataRequest& request) {
    for (size_t i = 0; i < request.arguments.size(); ++i) {
        const c10::TypePtr& type = request.argument_types[i];
        // A traced argument is a tensor of one shape; a scripted one may also be an optional
        // tensor.
        if (type->isSubtypeOf(*c10::TensorType::get()) ||
            c10::TensorType::get()->isSubtypeOf(*type))
            continue;
        fail(ExitCode::kInput,
             "{}: forward's argument '{}' is {}, but data supply only tensors; give it a default "
             "value in the model",
             path, request.arguments[i], type->repr_str());
    }
}

}  // namespace dslaunch::runtime
