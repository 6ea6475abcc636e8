#include "zero/states/tensor_optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace dslaunch::zero {

namespace {

constexpr int kNewtonSchulzSteps = 5;
// The quintic a x + b x^3 + c x^5 that rises most steeply at 0.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
// The Gram matrix is made anew before this step, for errors grow in it.
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

// The same with q x in the place of x: q is square, as the Gram matrix is.
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
                             const config::OptimizerConfig& config, double lr, int64_t step,
                             const std::optional<config::Betas>& betas) {
    DSL_CHECK(range.begin == 0 && range.numel <= std::ssize(gradients_.floats()),
              "{} elements of a tensor", range.numel);
    if (config.kind == config::OptimizerKind::kMuon) return muon(range, like, config, lr);
    DSL_CHECK(config.kind == config::OptimizerKind::kLamb, "optimizer {}",
              static_cast<int>(config.kind));
    config::OptimizerConfig moved = config;
    if (betas) moved.beta1 = betas->beta1, moved.beta2 = betas->beta2;
    lamb(range, moved, lr, step);
}

double TensorOptimizer::norm_of(const float* values, int64_t numel) {
    std::vector<device::Values> blocks;
    for (int64_t begin = 0; begin < numel; begin += kernels::kNormBlockNumel)
        blocks.push_back({values + begin, std::min(kernels::kNormBlockNumel, numel - begin)});
    double squares = 0;
    for (const double sum : queue_.sums_of_squares(blocks)) squares += sum;
    return std::sqrt(squares);
}

// The direction is m / (sqrt(v) + eps) + decay * p. An Adam step of rate -1 from 0 makes its first
// term while it moves the states.
void TensorOptimizer::lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config,
                           double lr, int64_t step) {
    const bool writes = !range.parameters.empty();
    const auto numel = static_cast<size_t>(range.numel);
    float* const direction = direction_.floats().data();
    kernels::FlatRange states = range;
    states.half_parameters = {};
    states.parameters = {};
    if (writes) {
        queue_.fill(direction, 0, range.numel);
        states.parameters = {direction, numel};
    }
    queue_.adam_step(states, {.lr = -1,
                              .beta1 = config.beta1,
                              .beta2 = config.beta2,
                              .eps = config.eps,
                              .weight_decay = 0,
                              .decoupled_decay = true,
                              .bias_correction = false,
                              .step = step});
    if (!writes) return;
    const float* const parameters = range.parameters.data();
    if (config.weight_decay != 0)
        queue_.accumulate_sum({&parameters, 1}, static_cast<float>(config.weight_decay), direction,
                              range.numel);
    const double weights = norm_of(parameters, range.numel);
    const double update = norm_of(direction, range.numel);
    const double coeff = weights > 0 && update > 0
                             ? std::clamp(weights / update, config.min_coeff, config.max_coeff)
                             : 1;
    const auto count = static_cast<double>(step);
    const double correction =
        config.bias_correction
            ? std::sqrt(1 - std::pow(config.beta2, count)) / (1 - std::pow(config.beta1, count))
            : 1;
    const float* const gradient = direction;
    kernels::FlatRange moved = range;
    moved.gradients = {&gradient, 1};
    moved.gradient_scale = 1;
    moved.first = {};
    moved.second = {};
    queue_.sgd_step(moved, {.lr = lr * correction * coeff});
}

void TensorOptimizer::muon(const kernels::FlatRange& range, const at::Tensor& like,
                           const config::OptimizerConfig& config, double lr) {
    DSL_CHECK(queue_.stream() == nullptr, "Muon on a device");
    const at::NoGradGuard no_grad;
    const auto tensor_of = [&](float* values) {
        return at::from_blob(values, like.sizes(), like.strides(), at::kFloat);
    };
    at::Tensor gradients = tensor_of(gradients_.floats().data());
    at::Tensor momentum = tensor_of(range.first.data());
    if (range.gradient_scale != 1) gradients.mul_(range.gradient_scale);
    momentum.lerp_(gradients, 1 - config.momentum);
    if (range.parameters.empty()) return;
    gradients.lerp_(momentum, config.momentum);  // Nesterov's
    // The filters of a convolution are the rows of a matrix.
    const at::Tensor matrix = like.dim() == 4 ? gradients.flatten(1) : gradients;
    const double rows_by_columns =
        static_cast<double>(like.size(-2)) / static_cast<double>(like.size(-1));
    const double size = std::sqrt(std::max(1.0, rows_by_columns));
    tensor_of(direction_.floats().data())
        .copy_(orthogonal(matrix, config.newton_schulz).mul(size).view_as(gradients));
    const float* const direction = direction_.floats().data();
    kernels::FlatRange moved = range;
    moved.gradients = {&direction, 1};
    moved.gradient_scale = 1;
    moved.first = {};
    moved.second = {};
    queue_.sgd_step(moved, {.lr = lr, .weight_decay = config.weight_decay});
}

}  // namespace dslaunch::zero
