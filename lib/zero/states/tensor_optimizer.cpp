#include "zero/states/tensor_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/factored.h"
#include "kernels/one_bit.h"

namespace dslaunch::zero {

namespace {

constexpr int kNewtonSchulzSteps = 5;
// The coefficients of the polynomial `a x + b x^3 + c x^5` in the Newton-Schulz iteration. They
// make it as steep as possible at 0, so that few steps are enough.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
// Rounding errors in the Gram matrix grow, so before this step the matrix is computed again.
constexpr int kGramRestart = 2;

device::Memory take(device::Device& device, int64_t numel) {
    if (numel == 0) return {};
    return device.allocate(Bytes{numel * int64_t{sizeof(float)}}, "a tensor's update");
}

at::Tensor by_products(at::Tensor x) {
    for (int i = 0; i < kNewtonSchulzSteps; ++i) {
        const at::Tensor gram = at::matmul(x, x.mT());
        const at::Tensor factor = kB * gram + kC * at::matmul(gram, gram);
        x = kA * x + at::matmul(factor, x);
    }
    return x;
}

// Computes the same as by_products(), with fewer products: the steps' factors are collected in q, a
// square matrix of the Gram matrix's size. X is multiplied by q only before a restart and at the
// end.
at::Tensor by_gram(at::Tensor x) {
    at::Tensor gram = at::matmul(x, x.mT());
    const at::Tensor one = at::eye(gram.size(-1), gram.options());
    at::Tensor q;
    for (int i = 0; i < kNewtonSchulzSteps; ++i) {
        if (i == kGramRestart) {
            x = at::matmul(q, x);
            gram = at::matmul(x, x.mT());
            q = at::Tensor();
        }
        const at::Tensor factor = kA * one + kB * gram + kC * at::matmul(gram, gram);
        q = q.defined() ? at::matmul(factor, q) : factor;
        const bool last_use = i + 1 == kGramRestart || i + 1 == kNewtonSchulzSteps;
        if (!last_use) gram = at::matmul(factor, at::matmul(gram, factor));
    }
    return at::matmul(q, x);
}

}  // namespace

at::Tensor orthogonal(const at::Tensor& x, config::NewtonSchulz method) {
    const bool tall = x.size(-2) > x.size(-1);
    at::Tensor wide = tall ? x.mT() : x;
    wide = wide / (at::linalg_vector_norm(wide, 2, {{-2, -1}}, /*keepdim=*/true) + 1e-7);
    const bool square = wide.size(-2) == wide.size(-1);
    wide = method == config::NewtonSchulz::kGram && !square ? by_gram(std::move(wide))
                                                            : by_products(std::move(wide));
    return tall ? wide.mT() : wide;
}

TensorOptimizer::TensorOptimizer(device::Device& device, device::Queue& queue, int64_t numel_max)
    : queue_(queue), gradients_(take(device, numel_max)), direction_(take(device, numel_max)) {}

void TensorOptimizer::update(const kernels::FlatRange& range, const at::Tensor& like,
                             const TensorStep& step) {
    DSL_CHECK(
        range.begin == 0 && range.numel <= std::ssize(gradients_.floats()) &&
            range.gradients.size() == 1,
        "a tensor has {} elements and {} gradients, expected one gradient of at most {} elements",
        range.numel, range.gradients.size(), gradients_.floats().size());
    if (range.parameters.empty()) return;
    config::OptimizerConfig config = *step.config;
    if (step.betas) config.beta1 = step.betas->beta1, config.beta2 = step.betas->beta2;
    switch (config.kind) {
        case config::OptimizerKind::kLamb:
            return lamb(range, config, step.lr, step.step);
        case config::OptimizerKind::kOneBitLamb:
            return one_bit_lamb(range, config, step);
        case config::OptimizerKind::kAdafactor:
            return adafactor(range, like, config, step);
        case config::OptimizerKind::kMuon:
            return muon(range, like, config, step.lr);
        default:
            DSL_CHECK(false, "optimizer {} is not supported here", static_cast<int>(config.kind));
    }
}

double TensorOptimizer::norm_of(const float* values, int64_t numel) {
    std::vector<device::FloatArray> blocks;
    for (int64_t begin = 0; begin < numel; begin += kernels::kNormBlockNumel)
        blocks.push_back({values + begin, std::min(kernels::kNormBlockNumel, numel - begin)});
    double squares = 0;
    for (const double sum : queue_.sums_of_squares(blocks)) squares += sum;
    return std::sqrt(squares);
}

// Changes the parameters by SCALE times the direction.
void TensorOptimizer::move(const kernels::FlatRange& range, const kernels::SgdStep& step,
                           float scale) {
    const float* const direction = direction_.floats().data();
    kernels::FlatRange moved = range;
    moved.gradients = {&direction, 1};
    moved.gradient_scale = scale;
    moved.first = {};
    moved.second = {};
    moved.third = {};
    queue_.sgd_step(moved, step);
}

// Adds the weight decay to the direction. Returns the norm of the parameters divided by the norm of
// the direction.
TensorOptimizer::Ratio TensorOptimizer::decayed(const kernels::FlatRange& range,
                                                const config::OptimizerConfig& config) {
    const float* const parameters = range.parameters.data();
    float* const direction = direction_.floats().data();
    if (config.weight_decay != 0)
        queue_.accumulate_sum({&parameters, 1}, static_cast<float>(config.weight_decay), direction,
                              range.numel);
    const double weights = norm_of(parameters, range.numel);
    const double update = norm_of(direction, range.numel);
    if (weights == 0 || update == 0) return {};
    return {std::clamp(weights / update, config.min_coeff, config.max_coeff), true};
}

// Updates m and v, and sets the direction to `m / (sqrt(v) + eps) + decay * p` or, if eps is inside
// the root, to `m / sqrt(v + eps) + decay * p`. To compute the first term, makes an Adam step with
// the rate -1 on parameters that are all 0.
TensorOptimizer::Ratio TensorOptimizer::mix_for_lamb(const kernels::FlatRange& range,
                                                     const config::OptimizerConfig& config,
                                                     int64_t step) {
    kernels::FlatRange states = range;
    states.half_parameters = {};
    states.parameters = direction_.floats().first(static_cast<size_t>(range.numel));
    queue_.fill(states.parameters.data(), 0, range.numel);
    queue_.adam_step(states, {.lr = -1,
                              .beta1 = config.beta1,
                              .beta2 = config.beta2,
                              .eps = config.eps,
                              .weight_decay = 0,
                              .decoupled_decay = true,
                              .bias_correction = false,
                              .step = step,
                              .eps_inside_sqrt = config.eps_inside_sqrt});
    return decayed(range, config);
}

void TensorOptimizer::lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config,
                           double lr, int64_t step) {
    const double ratio = mix_for_lamb(range, config, step).value;
    const auto count = static_cast<double>(step);
    const double correction =
        config.bias_correction
            ? std::sqrt(1 - std::pow(config.beta2, count)) / (1 - std::pow(config.beta1, count))
            : 1;
    move(range, {.lr = lr * correction * ratio});
}

// Makes a step of 1-bit LAMB. While gradients are exchanged in full, it is a step of LAMB, which
// also adds its ratio to the tensor's mean ratio.
void TensorOptimizer::one_bit_lamb(const kernels::FlatRange& range,
                                   const config::OptimizerConfig& config, const TensorStep& step) {
    DSL_CHECK(queue_.stream() == nullptr, "1-bit LAMB is not supported on a device");
    if (step.exchange != plan::Exchange::kExact) return frozen_lamb(range, config, step);
    const Ratio ratio = mix_for_lamb(range, config, step.step);
    const std::span<float> numbers = step.states[1];
    const double keep = config.one_bit.coeff_beta;
    if (ratio.defined) {
        numbers[kRatioSum] =
            static_cast<float>(keep * numbers[kRatioSum] + (1 - keep) * ratio.value);
        numbers[kRatioWeights] = static_cast<float>(keep * numbers[kRatioWeights] + (1 - keep));
    }
    numbers[kLastFactor] = 0;
    move(range, {.lr = step.lr * ratio.value});
}

// Returns the next momentum, for updates in which this host receives no momentum from other hosts.
const float* TensorOptimizer::mixed(const kernels::FlatRange& range, double beta1) {
    float* const into = direction_.floats().data();
    const float* const before = range.first.data();
    queue_.ordered_sum(range.gradients, range.gradient_scale * static_cast<float>(1 - beta1), into,
                       range.numel);
    queue_.accumulate_sum({&before, 1}, static_cast<float>(beta1), into, range.numel);
    std::swap(direction_, gradients_);
    return into;
}

// Makes a step with the variance of the first phase. Since that phase, the squares of the gradients
// have changed; one factor for the whole tensor corrects the step for this.
void TensorOptimizer::frozen_lamb(const kernels::FlatRange& range,
                                  const config::OptimizerConfig& config, const TensorStep& step) {
    const float* const momentum = step.exchange == plan::Exchange::kNone
                                      ? mixed(range, config.beta1)
                                      : range.gradients.front();
    const std::span<float> fresh = step.states[0];
    const std::span<float> numbers = step.states[1];
    if (numbers[kLastFactor] == 0) {
        queue_.copy(fresh.data(), range.second.data(), range.numel * int64_t{sizeof(float)});
        numbers[kLastFactor] = 1;
    }
    const double last = numbers[kLastFactor];
    double factor = kernels::fresh_variance({range.numel, range.first.data(), momentum,
                                             range.second.data(), fresh.data(), config.beta1,
                                             config.beta2, static_cast<float>(config.eps)});
    kernels::FlatRange states = range;
    states.gradients = {&momentum, 1};
    states.gradient_scale = 1;
    states.half_parameters = {};
    states.parameters = direction_.floats().first(static_cast<size_t>(range.numel));
    queue_.fill(states.parameters.data(), 0, range.numel);
    queue_.adam_step(states, {.lr = -1,
                              .beta1 = 0,
                              .beta2 = config.beta2,
                              .eps = config.eps,
                              .weight_decay = 0,
                              .decoupled_decay = true,
                              .bias_correction = false,
                              .frozen_variance = true});
    const double without_decay = norm_of(states.parameters.data(), range.numel);
    const Ratio ratio = decayed(range, config);
    if (numbers[kRatioWeights] == 0 && ratio.defined) {
        numbers[kRatioSum] = static_cast<float>(ratio.value);
        numbers[kRatioWeights] = 1;
    }
    const double update = norm_of(states.parameters.data(), range.numel);
    const config::OneBitConfig& one_bit = config.one_bit;
    // The factor is 0 if no element has had a gradient. Then the previous factor stays in use.
    if (factor == 0) factor = last;
    if (config.weight_decay > 0 && update > 0) {
        const double share = std::min(1.0, without_decay / update);
        factor = factor * share + 1 - share;
    }
    factor = std::clamp(factor, one_bit.factor_min, one_bit.factor_max);
    factor = std::clamp(factor, last * (1 - one_bit.factor_threshold),
                        last * (1 + one_bit.factor_threshold));
    numbers[kLastFactor] = static_cast<float>(factor);
    const double weights = numbers[kRatioWeights];
    const double mean = weights > 0 ? double{numbers[kRatioSum]} / weights : 1;
    move(range, {.lr = step.lr * mean * factor});
}

// Makes a step of Adafactor. direction_ is in row-major order until the direction is complete.
void TensorOptimizer::adafactor(const kernels::FlatRange& range, const at::Tensor& like,
                                const config::OptimizerConfig& config, const TensorStep& step) {
    DSL_CHECK(queue_.stream() == nullptr, "Adafactor is not supported on a device");
    const at::NoGradGuard no_grad;
    const config::AdafactorConfig& own = config.adafactor;
    const auto tensor_of = [&](const float* values) {
        return at::from_blob(const_cast<float*>(values), like.sizes(), like.strides(), at::kFloat);
    };
    const at::Tensor gradients = tensor_of(range.gradients.front()).contiguous();
    const float* const g = gradients.const_data_ptr<float>();
    float* const direction = direction_.floats().data();
    const kernels::SquareStep squares{1 - std::pow(static_cast<double>(step.step), own.decay_rate),
                                      own.square_eps, range.gradient_scale};
    if (like.dim() >= 2) {
        const kernels::FactoredShape shape{like.numel() / like.size(-1) / like.size(-2),
                                           like.size(-2), like.size(-1)};
        kernels::move_factors(g, shape, squares, step.states[0], step.states[1]);
        kernels::factored_direction(g, shape, range.gradient_scale, step.states[0], step.states[1],
                                    direction);
    } else {
        kernels::whole_direction(g, squares, step.states[2], direction);
    }
    if (!like.is_contiguous())
        tensor_of(direction).copy_(at::from_blob(direction, like.sizes(), at::kFloat).clone());
    const double root = std::sqrt(static_cast<double>(range.numel));
    const double clip = std::max(1.0, norm_of(direction, range.numel) / root / own.clip_threshold);
    double lr = step.lr;
    if (own.scale_parameter)
        lr *= std::max(own.scale_eps, norm_of(range.parameters.data(), range.numel) / root);
    const auto scale = static_cast<float>(1 / clip);
    if (!own.first_moment)
        return move(range, {.lr = lr, .weight_decay = config.weight_decay}, scale);
    // This first moment is the mean of updates, not of gradients: it includes the learning rates.
    at::Tensor moment = at::from_blob(range.first.data(), {range.numel}, at::kFloat);
    const at::Tensor update = at::from_blob(direction, {range.numel}, at::kFloat);
    moment.mul_(config.beta1).add_(update, (1 - config.beta1) * lr * scale);
    queue_.copy(direction, range.first.data(), range.numel * int64_t{sizeof(float)});
    move(range, {.lr = 1, .weight_decay = config.weight_decay * lr});
}

void TensorOptimizer::muon(const kernels::FlatRange& range, const at::Tensor& like,
                           const config::OptimizerConfig& config, double lr) {
    DSL_CHECK(queue_.stream() == nullptr, "Muon is not supported on a device");
    const at::NoGradGuard no_grad;
    const auto tensor_of = [&](float* values) {
        return at::from_blob(values, like.sizes(), like.strides(), at::kFloat);
    };
    at::Tensor gradients = tensor_of(gradients_.floats().data());
    at::Tensor momentum = tensor_of(range.first.data());
    if (range.gradient_scale != 1) gradients.mul_(range.gradient_scale);
    momentum.lerp_(gradients, 1 - config.momentum);
    gradients.lerp_(momentum, config.momentum);  // as Nesterov's method does
    // The filters of a convolution are treated as the rows of a matrix.
    const at::Tensor matrix = like.dim() == 4 ? gradients.flatten(1) : gradients;
    const double rows_by_columns =
        static_cast<double>(like.size(-2)) / static_cast<double>(like.size(-1));
    const double size = std::sqrt(std::max(1.0, rows_by_columns));
    tensor_of(direction_.floats().data())
        .copy_(orthogonal(matrix, config.newton_schulz).mul(size).view_as(gradients));
    move(range, {.lr = lr, .weight_decay = config.weight_decay});
}

}  // namespace dslaunch::zero
