#include "kernels/update_arguments.h"

#include <cmath>

#include "base/check.h"

namespace dslaunch::kernels {

Sources sources_of(std::span<const float* const> sources) {
    DSL_CHECK(!sources.empty(), "at least one source is needed");
    return {sources.data(), nullptr, std::ssize(sources), NumberKind::kFp32};
}

NumberKind half_kind(DType dtype) {
    DSL_CHECK(is_half(dtype), "{} is not a 16-bit format", dtype_name(dtype));
    return dtype == DType::kBF16 ? NumberKind::kBf16 : NumberKind::kFp16;
}

namespace {

Sources gradients_of(const FlatRange& range) {
    DSL_CHECK(range.gradients.empty() || range.half_gradients.empty(),
              "gradients must be either fp32 or 16-bit, not both");
    if (range.half_gradients.empty()) return sources_of(range.gradients);
    return {nullptr, range.half_gradients.data(), std::ssize(range.half_gradients),
            half_kind(range.gradient_dtype)};
}

// Returns the start of VALUES, or null if the array is not given.
template <typename T>
T* start_of(std::span<T> values, const FlatRange& range) {
    const int64_t end = range.begin + range.numel;
    DSL_CHECK(values.empty() || std::ssize(values) >= end,
              "an array has {} elements, but {} are needed", values.size(), end);
    return values.empty() ? nullptr : values.data();
}

// With this many elements or more, the 16-bit copy is written directly to memory. In the caches, it
// would replace other data, and be replaced itself before anything reads it.
constexpr int64_t kStreamNumelMin = int64_t{1} << 20;

UpdateArrays arrays_with(const FlatRange& range, double l2_decay) {
    DSL_CHECK(range.begin >= 0 && range.numel >= 0, "[{}, +{})", range.begin, range.numel);
    UpdateArrays arrays{};
    arrays.gradients = gradients_of(range);
    arrays.gradient_scale = range.gradient_scale;
    arrays.l2_decay = static_cast<float>(l2_decay);
    arrays.parameters = start_of(range.parameters, range);
    arrays.decay_parameters =
        arrays.parameters != nullptr ? arrays.parameters : start_of(range.decay_parameters, range);
    DSL_CHECK(l2_decay == 0 || arrays.decay_parameters != nullptr, "L2 decay needs the parameters");
    arrays.first = start_of(range.first, range);
    arrays.second = start_of(range.second, range);
    arrays.third = start_of(range.third, range);
    arrays.half = start_of(range.half_parameters, range);
    arrays.half_kind = half_kind(range.half_dtype);
    arrays.streams = arrays.half != nullptr && range.numel >= kStreamNumelMin;
    DSL_CHECK(arrays.half == nullptr || arrays.parameters != nullptr,
              "a 16-bit copy of the parameters needs the parameters");
    return arrays;
}

}  // namespace

UpdateArrays arrays_of(const FlatRange& range, const AdamStep& step) {
    const UpdateArrays arrays = arrays_with(range, step.decoupled_decay ? 0 : step.weight_decay);
    DSL_CHECK(arrays.first != nullptr && arrays.second != nullptr, "Adam needs two states");
    DSL_CHECK(!step.amsgrad || arrays.third != nullptr, "amsgrad needs a third state");
    return arrays;
}

UpdateArrays arrays_of(const FlatRange& range, const AdagradStep& step) {
    const UpdateArrays arrays = arrays_with(range, step.weight_decay);
    DSL_CHECK(arrays.first != nullptr, "Adagrad needs the sum of squares");
    return arrays;
}

UpdateArrays arrays_of(const FlatRange& range, const LionStep& /*step*/) {
    const UpdateArrays arrays = arrays_with(range, 0);
    DSL_CHECK(arrays.first != nullptr, "Lion needs the momentum");
    return arrays;
}

UpdateArrays arrays_of(const FlatRange& range, const SgdStep& step) {
    UpdateArrays arrays = arrays_with(range, step.weight_decay);
    DSL_CHECK(step.momentum == 0 || arrays.first != nullptr, "momentum needs a buffer");
    if (step.momentum == 0) arrays.first = nullptr;
    return arrays;
}

namespace {

AdamForm form_of(const AdamStep& step) {
    if (step.frozen_variance) return AdamForm::kFrozen;
    if (step.amsgrad) return AdamForm::kLargest;
    return step.eps_inside_sqrt ? AdamForm::kEpsInside : AdamForm::kUsual;
}

}  // namespace

AdamConstants constants_of(const AdamStep& step) {
    DSL_CHECK(step.step >= 1 && step.steps >= 1,
              "step {} and number of steps {} must be at least 1", step.step, step.steps);
    DSL_CHECK(!step.frozen_variance || (step.decoupled_decay && !step.bias_correction),
              "a frozen variance needs decoupled decay and no bias correction");
    DSL_CHECK(step.frozen_variance + step.amsgrad + step.eps_inside_sqrt <= 1,
              "amsgrad, a frozen variance and eps inside the root exclude each other");
    DSL_CHECK(!step.eps_inside_sqrt || !step.bias_correction,
              "eps inside the root cannot be combined with bias correction");
    const auto count = static_cast<double>(step.step);
    const double correction1 = step.bias_correction ? 1 - std::pow(step.beta1, count) : 1;
    const double correction2 = step.bias_correction ? 1 - std::pow(step.beta2, count) : 1;
    const auto over_steps = [&](double beta) {
        return step.steps == 1 ? beta : std::pow(beta, static_cast<double>(step.steps));
    };
    const double beta1 = over_steps(step.beta1), beta2 = over_steps(step.beta2);
    const double decoupled = step.decoupled_decay ? step.lr * step.weight_decay : 0;
    return {.parameter_keep = static_cast<float>(1 - decoupled),
            .beta1_rest = static_cast<float>(1 - beta1),
            .beta2 = static_cast<float>(beta2),
            .beta2_rest = static_cast<float>(1 - beta2),
            .correction2_sqrt = static_cast<float>(std::sqrt(correction2)),
            .eps = static_cast<float>(step.eps),
            .step_size = static_cast<float>(step.lr / correction1),
            .form = form_of(step)};
}

AdagradConstants constants_of(const AdagradStep& step) {
    DSL_CHECK(step.step >= 1, "step {}", step.step);
    const double lr = step.lr / (1 + static_cast<double>(step.step - 1) * step.lr_decay);
    return {.eps = static_cast<float>(step.eps), .lr = static_cast<float>(lr)};
}

LionConstants constants_of(const LionStep& step) {
    return {.parameter_keep = static_cast<float>(1 - step.lr * step.weight_decay),
            .beta1 = static_cast<float>(step.beta1),
            .beta1_rest = static_cast<float>(1 - step.beta1),
            .beta2 = static_cast<float>(step.beta2),
            .beta2_rest = static_cast<float>(1 - step.beta2),
            .lr = static_cast<float>(step.lr)};
}

SgdConstants constants_of(const SgdStep& step) {
    return {.momentum = static_cast<float>(step.momentum),
            .damping_rest = static_cast<float>(1 - step.dampening),
            .lr = static_cast<float>(step.lr),
            .nesterov = step.nesterov,
            .first_step = step.first_step};
}

}  // namespace dslaunch::kernels
