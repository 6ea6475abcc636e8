#include "job/verify/update_error.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace dslaunch::job {

namespace {

constexpr double kUnit = 0x1p-23;  // twice the relative rounding error of fp32

// The value of a sum, and the sum of its terms' magnitudes. The rounding error is relative to the
// sum of magnitudes.
struct Sum {
    Sum(std::initializer_list<double> terms) {
        for (const double term : terms) {
            value += term;
            size += std::abs(term);
        }
    }
    double value = 0;
    double size = 0;
};

double error(double found, const Sum& expected, double more = 0) {
    const double allowed = 4 * kUnit * expected.size + more + 1e-37;
    return std::isfinite(found) ? std::abs(found - expected.value) / allowed : INFINITY;
}

// Returns the error of FOUND, which should be PARAMETER - DELTA. DELTA itself may be wrong by 16
// rounding units plus MORE.
double moved(double found, double parameter, double delta, double more = 0) {
    return error(found, {parameter, -delta}, 16 * kUnit * std::abs(delta) + more);
}

double adam_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                  const Sum& gradient, const ElementValues& before, const ElementValues& after) {
    const double g = gradient.value;
    const Sum first{config.beta1 * before.first, (1 - config.beta1) * g};
    const Sum second{config.beta2 * before.second, (1 - config.beta2) * g * g};
    const double rounded = 8 * kUnit * gradient.size;
    double worst = error(after.first, first, rounded + kUnit * std::abs(before.first));
    worst =
        std::max(worst, error(after.second, second, 2 * std::abs(g) * rounded + rounded * rounded));
    const auto step = static_cast<double>(facts.update);
    const double rest1 = config.bias_correction ? 1 - std::pow(config.beta1, step) : 1;
    const double rest2 = config.bias_correction ? 1 - std::pow(config.beta2, step) : 1;
    const bool decoupled = !config::facts_of(config.kind).decays_gradient;
    const double kept = before.parameter * (1 - (decoupled ? facts.lr * config.weight_decay : 0.0));
    // Uses the states as the update stored them, because other checks already cover their rounding.
    double variance = after.second;
    if (config.amsgrad) {
        variance = after.third;
        if (after.third != std::max(before.third, after.second)) return INFINITY;
    }
    const double delta =
        facts.lr / rest1 * after.first / (std::sqrt(variance / rest2) + config.eps);
    return std::max(worst, moved(after.parameter, kept, delta));
}

double adagrad_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                     const Sum& gradient, const ElementValues& before, const ElementValues& after) {
    const double g = gradient.value;
    const double lr = facts.lr / (1 + static_cast<double>(facts.update - 1) * config.lr_decay);
    const double delta = lr * g / (std::sqrt(after.first) + config.eps);
    const double slack =
        lr * 16 * kUnit * gradient.size / (std::sqrt(std::abs(after.first)) + config.eps);
    return std::max(
        error(after.first, {before.first, g * g}, 16 * kUnit * std::abs(g) * gradient.size),
        moved(after.parameter, before.parameter, delta, slack));
}

double lion_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                  const Sum& gradient, const ElementValues& before, const ElementValues& after) {
    const Sum mixed{config.beta1 * before.first, (1 - config.beta1) * gradient.value};
    const Sum first{config.beta2 * before.first, (1 - config.beta2) * gradient.value};
    const double worst = error(after.first, first, 8 * kUnit * gradient.size);
    // If the terms almost cancel, rounding decides the sign of the sum: do not check the parameter.
    if (std::abs(mixed.value) <= 16 * kUnit * mixed.size) return worst;
    const double kept = before.parameter * (1 - facts.lr * config.weight_decay);
    return std::max(worst, moved(after.parameter, kept, facts.lr * (mixed.value > 0 ? 1.0 : -1.0)));
}

double sgd_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                 const Sum& gradient, const ElementValues& before, const ElementValues& after) {
    double direction = gradient.value, worst = 0;
    if (config.momentum != 0) {
        const bool is_first = facts.update == 1;
        const Sum first{is_first ? 0 : config.momentum * before.first,
                        (is_first ? 1 : 1 - config.dampening) * gradient.value};
        worst = error(after.first, first, 8 * kUnit * gradient.size);
        direction = config.nesterov ? gradient.value + config.momentum * after.first : after.first;
    }
    return std::max(worst, moved(after.parameter, before.parameter, facts.lr * direction,
                                 facts.lr * 16 * kUnit * gradient.size));
}

}  // namespace

double update_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                    const ElementValues& before, const ElementValues& after) {
    const Sum gradient{config.maximize ? -facts.gradient : facts.gradient,
                       config.decays_gradient() ? config.weight_decay * before.parameter : 0};
    switch (config.kind) {
        case config::OptimizerKind::kAdam:
        case config::OptimizerKind::kAdamW:
            return adam_error(config, facts, gradient, before, after);
        case config::OptimizerKind::kAdagrad:
            return adagrad_error(config, facts, gradient, before, after);
        case config::OptimizerKind::kLion:
            return lion_error(config, facts, gradient, before, after);
        case config::OptimizerKind::kSgd:
            return sgd_error(config, facts, gradient, before, after);
        default:  // rules for whole tensors, and optimizers that are not verified
            return INFINITY;
    }
}

}  // namespace dslaunch::job
