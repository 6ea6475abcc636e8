// The rules of update_rules.h for optimizers that update whole tensors.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "job/verify/update_error.h"

namespace dslaunch::job {

namespace {

constexpr double kRoundingUnit = 0x1p-23;  // twice the relative rounding error of fp32
// The tolerance for a matrix after several steps of a quintic iteration that starts from fp32
// numbers. The steps multiply small singular values, and their rounding errors, by several hundred.
// The tolerance is relative to the largest singular value, which is about 1.
constexpr double kOrthogonalSlack = 1e-3;

at::Tensor values_of(std::span<const float> values, const at::Tensor& like) {
    return at::from_blob(const_cast<float*>(values.data()), like.sizes(), like.strides(),
                         at::kFloat)
        .to(at::kDouble);
}

// Returns the largest |FOUND - EXPECTED| / ALLOWED, and the element where it occurs.
TensorError worst_of(const at::Tensor& found, const at::Tensor& expected,
                     const at::Tensor& allowed) {
    const at::Tensor ratio = ((found - expected).abs() / (allowed + 1e-37)).contiguous().view(-1);
    if (ratio.numel() == 0) return {};
    if (!at::isfinite(ratio).all().item<bool>()) return {INFINITY, 0};
    const int64_t element = ratio.argmax().item<int64_t>();
    return {ratio[element].item<double>(), element};
}

TensorError larger(const TensorError& a, const TensorError& b) {
    return b.error > a.error ? b : a;
}

// Returns the error of FOUND, which should be `keep * old + (1 - keep) * added`. The result is 1
// for an error of UNITS rounding units.
TensorError state_error(const at::Tensor& found, const at::Tensor& old, const at::Tensor& added,
                        double keep, double units = 16) {
    return worst_of(found, keep * old + (1 - keep) * added,
                    units * kRoundingUnit * (old.abs() + added.abs()));
}

TensorError lamb_error(const config::OptimizerConfig& config, const at::Tensor& g,
                       const TensorFacts& facts, const TensorValues& before,
                       const TensorValues& after) {
    const at::Tensor m = values_of(after.first, facts.like);
    const at::Tensor v = values_of(after.second, facts.like);
    const TensorError states =
        larger(state_error(m, values_of(before.first, facts.like), g, config.beta1),
               state_error(v, values_of(before.second, facts.like), g * g, config.beta2));
    const at::Tensor p = values_of(before.parameters, facts.like);
    // Uses the states as the update stored them, because other checks already cover their rounding.
    const at::Tensor root =
        config.eps_inside_sqrt ? (v + config.eps).sqrt() : v.sqrt() + config.eps;
    const at::Tensor way = m / root + config.weight_decay * p;
    const double weights = p.norm().item<double>(), size = way.norm().item<double>();
    const double ratio = weights > 0 && size > 0
                             ? std::clamp(weights / size, config.min_coeff, config.max_coeff)
                             : 1;
    const auto step = static_cast<double>(facts.update);
    const double correction = config.bias_correction ? std::sqrt(1 - std::pow(config.beta2, step)) /
                                                           (1 - std::pow(config.beta1, step))
                                                     : 1;
    const at::Tensor delta = facts.lr * ratio * correction * way;
    return larger(states, worst_of(values_of(after.parameters, facts.like), p - delta,
                                   kRoundingUnit * (8 * p.abs() + 64 * delta.abs())));
}

// A mean of the second moment over some dimensions: its value after the update, and the error of
// this value.
struct MovedMean {
    at::Tensor value;  // as it was stored
    TensorError error;
};
MovedMean moved_mean(std::span<const float> before, std::span<const float> after,
                     const at::Tensor& mean, double keep) {
    const at::Tensor old = values_of(before, at::empty(mean.sizes()));
    const at::Tensor found = values_of(after, at::empty(mean.sizes()));
    return {found, state_error(found, old, mean, keep)};
}

double root_mean_square(const at::Tensor& values) {
    return values.norm().item<double>() / std::sqrt(static_cast<double>(values.numel()));
}

TensorError adafactor_error(const config::OptimizerConfig& config, const at::Tensor& g,
                            const TensorFacts& facts, const TensorValues& before,
                            const TensorValues& after) {
    const config::AdafactorConfig& own = config.adafactor;
    const double keep = 1 - std::pow(static_cast<double>(facts.update), own.decay_rate);
    const at::Tensor squares = g * g + own.square_eps;
    TensorError states;
    at::Tensor way;
    if (g.dim() >= 2) {
        const MovedMean rows =
            moved_mean(before.factors[0], after.factors[0], squares.mean(-1), keep);
        const MovedMean columns =
            moved_mean(before.factors[1], after.factors[1], squares.mean(-2), keep);
        states = larger(rows.error, columns.error);
        way = g * (rows.value / rows.value.mean(-1, true)).rsqrt().unsqueeze(-1) *
              columns.value.rsqrt().unsqueeze(-2);
    } else {
        const MovedMean all = moved_mean(before.factors[2], after.factors[2], squares, keep);
        states = all.error;
        way = g * all.value.rsqrt();
    }
    const at::Tensor p = values_of(before.parameters, facts.like);
    const double lr =
        facts.lr * (own.scale_parameter ? std::max(own.scale_eps, root_mean_square(p)) : 1.0);
    way = lr / std::max(1.0, root_mean_square(way) / own.clip_threshold) * way;
    if (own.first_moment) {
        const at::Tensor m = values_of(before.first, facts.like);
        const at::Tensor next = values_of(after.first, facts.like);
        states = larger(states, state_error(next, m, way, config.beta1, 64));
        way = next;
    }
    const at::Tensor expected = p * (1 - lr * config.weight_decay) - way;
    return larger(states, worst_of(values_of(after.parameters, facts.like), expected,
                                   kRoundingUnit * (8 * p.abs() + 64 * way.abs())));
}

// Computes Jordan's iteration as it was published.
at::Tensor newton_schulz(at::Tensor x) {
    const bool tall = x.size(-2) > x.size(-1);
    if (tall) x = x.mT();
    x = x / (at::linalg_vector_norm(x, 2, {{-2, -1}}, true) + 1e-7);
    for (int i = 0; i < 5; ++i) {
        const at::Tensor a = at::matmul(x, x.mT());
        x = 3.4445 * x + at::matmul(-4.7750 * a + 2.0315 * at::matmul(a, a), x);
    }
    return tall ? x.mT() : x;
}

TensorError muon_error(const config::OptimizerConfig& config, const at::Tensor& g,
                       const TensorFacts& facts, const TensorValues& before,
                       const TensorValues& after) {
    const at::Tensor old = values_of(before.first, facts.like);
    const at::Tensor momentum = values_of(after.first, facts.like);
    const TensorError states = state_error(momentum, old, g, config.momentum);
    const at::Tensor way = (1 - config.momentum) * g + config.momentum * momentum;
    const at::Tensor matrix = way.dim() == 4 ? way.flatten(1) : way;
    const double size = std::sqrt(
        std::max(1.0, static_cast<double>(way.size(-2)) / static_cast<double>(way.size(-1))));
    const at::Tensor p = values_of(before.parameters, facts.like);
    const at::Tensor expected = p * (1 - facts.lr * config.weight_decay) -
                                facts.lr * size * newton_schulz(matrix).reshape(p.sizes());
    const at::Tensor allowed = 8 * kRoundingUnit * p.abs() + facts.lr * size * kOrthogonalSlack;
    return larger(states, worst_of(values_of(after.parameters, facts.like), expected, allowed));
}

}  // namespace

TensorError tensor_update_error(const config::OptimizerConfig& config, const TensorFacts& facts,
                                const TensorValues& before, const TensorValues& after) {
    const at::NoGradGuard no_grad;
    const at::Tensor g = values_of(facts.gradients, facts.like) * facts.factor;
    if (config.kind == config::OptimizerKind::kMuon)
        return muon_error(config, g, facts, before, after);
    if (config.kind == config::OptimizerKind::kAdafactor)
        return adafactor_error(config, g, facts, before, after);
    DSL_CHECK(config.kind == config::OptimizerKind::kLamb, "optimizer {}",
              static_cast<int>(config.kind));
    return lamb_error(config, g, facts, before, after);
}

}  // namespace dslaunch::job
