#include "engine/fed_samples.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"

namespace dslaunch::engine {

namespace {

// Returns the type to which TENSOR is converted before forward gets it: bool, fp32 or int64. Rows
// of a data file are converted by the same rule.
c10::ScalarType fed_type(const at::Tensor& tensor) {
    if (tensor.scalar_type() == at::kBool) return at::kBool;
    return tensor.is_floating_point() ? at::kFloat : at::kLong;
}

std::string shape_text(c10::ScalarType type, const std::vector<int64_t>& shape) {
    return fmt::format("{} [rows{}{}]", c10::toString(type), shape.empty() ? "" : ", ",
                       fmt::join(shape, ", "));
}

std::vector<int64_t> sample_shape(const at::Tensor& tensor) {
    return {tensor.sizes().begin() + 1, tensor.sizes().end()};
}

// Throws Error{kInput} unless TENSOR, which has the rows for ARGUMENT, is a dense CPU tensor with
// elements.
void require_rows(const char* where, const std::string& argument, const at::Tensor& tensor) {
    const auto refuse = [&](const std::string& why) {
        fail(ExitCode::kInput, "{}: the tensor for argument '{}' {}", where, printable(argument),
             why);
    };
    if (!tensor.defined()) refuse("is not defined");
    if (!tensor.device().is_cpu())
        refuse("is on a GPU: give rows on the CPU, the engine copies them to its device");
    if (tensor.layout() != at::kStrided || tensor.is_complex()) refuse("is sparse or complex");
    if (tensor.dim() == 0) refuse("is a single number: its first dimension must be the rows");
    if (tensor.numel() == 0) refuse("is empty");
}

void check_limit(const std::string& place, const at::Tensor& rows,
                 const runtime::IndexLimit& limit) {
    const at::Tensor flat = rows.view({rows.size(0), -1});
    const auto values = flat.accessor<int64_t, 2>();
    for (int64_t row = 0; row < flat.size(0); ++row)
        for (int64_t i = 0; i < flat.size(1); ++i) {
            const int64_t value = values[row][i];
            if ((value >= 0 && value < limit.count) || value == limit.also) continue;
            fail(ExitCode::kInput, "{}, row {}: {} is not a valid {}: valid values are 0 to {}{}",
                 place, row, value, limit.what, limit.count - 1,
                 limit.also ? fmt::format(", or {}", *limit.also) : "");
        }
}

}  // namespace

FedForm::FedForm(const runtime::DataRequest& request, const std::vector<at::Tensor>& example) {
    constexpr const char* kWhere = "EngineOptions::example";
    runtime::check_arguments_are_tensors(kWhere, request);
    if (example.size() != request.arguments.size())
        fail(ExitCode::kInput, "{}: has {}, but forward takes {}: {}", kWhere,
             counted(std::ssize(example), "tensor"),
             counted(std::ssize(request.arguments), "argument"), join(request.arguments, ", "));
    for (size_t i = 0; i < example.size(); ++i) {
        const std::string& argument = request.arguments[i];
        require_rows(kWhere, argument, example[i]);
        c10::ScalarType type = fed_type(example[i]);
        if (request.has_target() && i + 1 == example.size()) {
            if (request.loss.takes_classes() && type != at::kLong)
                fail(ExitCode::kInput,
                     "{}: the target '{}' does not contain integers, but the loss needs class "
                     "numbers",
                     kWhere, printable(argument));
            if (!request.loss.takes_classes()) type = at::kFloat;
        }
        inputs_.push_back({argument, type, sample_shape(example[i])});
    }
}

std::vector<at::Tensor> FedForm::take(const char* where,
                                      const std::vector<at::Tensor>& rows) const {
    if (rows.size() != inputs_.size())
        fail(ExitCode::kInput, "{}: got {}, but the example had {}", where,
             counted(std::ssize(rows), "tensor"), inputs_.size());
    const c10::InferenceMode inference(false);  // LibTorch cannot train with inference tensors
    std::vector<at::Tensor> taken;
    for (size_t i = 0; i < rows.size(); ++i) {
        const runtime::DataInput& input = inputs_[i];
        require_rows(where, input.argument, rows[i]);
        const bool is_float = rows[i].is_floating_point();
        const bool fits = is_float
                              ? input.dtype == at::kFloat
                              : input.dtype != at::kFloat || rows[i].scalar_type() != at::kBool;
        if (!fits || sample_shape(rows[i]) != input.sample_shape)
            fail(ExitCode::kInput,
                 "{}: the tensor for argument '{}' is {}, but EngineOptions::example has {}: pad "
                 "the rows, or open an engine with an example of the other shape",
                 where, printable(input.argument),
                 shape_text(rows[i].scalar_type(), sample_shape(rows[i])),
                 shape_text(input.dtype, input.sample_shape));
        if (rows[i].size(0) != rows[0].size(0))
            fail(ExitCode::kInput, "{}: argument '{}' has {} rows, but '{}' has {}", where,
                 printable(input.argument), rows[i].size(0), printable(inputs_[0].argument),
                 rows[0].size(0));
        // Copies the rows, because forward may write to its arguments and the caller owns ROWS.
        taken.push_back(rows[i].detach().to(input.dtype).clone(at::MemoryFormat::Contiguous));
    }
    for (const auto& [input, limit] : limits_)
        check_limit(fmt::format("{}: argument '{}'", where, printable(inputs_[input].argument)),
                    taken[input], limit);
    return taken;
}

FedSamples::FedSamples(FedForm& form, std::vector<at::Tensor> rows, const FedPlace& place)
    : form_(form), rows_(std::move(rows)), place_(place) {
    DSL_CHECK(place.ranks == 1 || rows_[0].size(0) % place.micro_rows == 0,
              "{} rows are no multiple of {}", rows_[0].size(0), place.micro_rows);
}

int64_t FedSamples::sample_count() const {
    return rows_[0].size(0) * place_.ranks;
}

std::vector<c10::IValue> FedSamples::batch(int64_t first, std::span<const int64_t> offsets) const {
    std::vector<int64_t> own;
    for (const int64_t offset : offsets) {
        const int64_t sample = first + offset;
        own.push_back(sample / place_.micro_rows / place_.ranks * place_.micro_rows +
                      sample % place_.micro_rows);
    }
    const at::Tensor indices = at::tensor(own, at::kLong);
    std::vector<c10::IValue> values;
    for (const at::Tensor& rows : rows_) values.emplace_back(rows.index_select(0, indices));
    return values;
}

void FedSamples::check_indices(size_t input, const runtime::IndexLimit& limit) const {
    if (form_.inputs()[input].dtype != at::kLong) return;  // the trial pass reports the error
    check_limit(fmt::format("{}: argument '{}'", path_, printable(form_.inputs()[input].argument)),
                rows_[input], limit);
    form_.limit(input, limit);
}

}  // namespace dslaunch::engine
