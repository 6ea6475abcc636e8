#include "job/verify/update_rules.h"

#include <algorithm>
#include <cmath>

namespace dslaunch::job {

namespace {

constexpr double kUnit = 0x1p-23;  // relative rounding of fp32, twice

// Terms of a sum: its value, and the size that its rounding is relative to.
struct Sum {
    double value = 0;
    double size = 0;
    void add(double term) {
        value += term;
        size += std::abs(term);
    }
};

double error(double found, const Sum& expected, double more = 0) {
    const double allowed = 4 * kUnit * expected.size + more + 1e-37;
    return std::isfinite(found) ? std::abs(found - expected.value) / allowed : INFINITY;
}

// PARAMETER after a step of DELTA, whose own rounding is 16 units.
double moved(double found, double parameter, double delta) {
    Sum sum;
    sum.add(parameter);
    sum.add(-delta);
    return error(found, sum, 16 * kUnit * std::abs(delta));
}

double adam_error(const config::OptimizerConfig& config, const UpdateFacts& facts, double gradient,
                  double size, const ElementValues& before, const ElementValues& after) {
    Sum first, second;
    first.add(config.beta1 * before.first);
    first.add((1 - config.beta1) * gradient);
    second.add(config.beta2 * before.second);
    second.add((1 - config.beta2) * gradient * gradient);
    const double rounded = 8 * kUnit * size;  // of the gradient
    double worst = error(after.first, first, rounded + kUnit * std::abs(before.first));
    worst = std::max(
        worst, error(after.second, second, (2 * std::abs(gradient) * rounded + rounded * rounded)));
    const auto step = static_cast<double>(facts.update);
    const double rest1 = config.bias_correction ? 1 - std::pow(config.beta1, step) : 1;
    const double rest2 = config.bias_correction ? 1 - std::pow(config.beta2, step) : 1;
    const bool decoupled = config.kind == config::OptimizerKind::kAdamW;
    const double kept = before.parameter * (1 - (decoupled ? facts.lr * config.weight_decay : 0.0));
    // With the states as they were stored: their rounding is not counted twice.
    const double delta =
        facts.lr / rest1 * after.first / (std::sqrt(after.second / rest2) + config.eps);
    return std::max(worst, moved(after.parameter, kept, delta));
}

}  // namespace

double update_error(const config::OptimizerConfig& config, const UpdateFacts& facts,
                    const ElementValues& before, const ElementValues& after) {
    Sum sum;
    sum.add(config.maximize ? -facts.gradient : facts.gradient);
    if (config.decays_gradient()) sum.add(config.weight_decay * before.parameter);
    const double gradient = sum.value;
    switch (config.kind) {
        case config::OptimizerKind::kAdam:
        case config::OptimizerKind::kAdamW:
            return adam_error(config, facts, gradient, sum.size, before, after);
        case config::OptimizerKind::kAdagrad: {
            Sum second;
            second.add(before.first);
            second.add(gradient * gradient);
            const double lr =
                facts.lr / (1 + static_cast<double>(facts.update - 1) * config.lr_decay);
            const double delta = lr * gradient / (std::sqrt(after.first) + config.eps);
            const double slack =
                lr * 16 * kUnit * sum.size / (std::sqrt(std::abs(after.first)) + config.eps);
            Sum parameter;
            parameter.add(before.parameter);
            parameter.add(-delta);
            return std::max(
                error(after.first, second, 16 * kUnit * std::abs(gradient) * sum.size),
                error(after.parameter, parameter, slack + 16 * kUnit * std::abs(delta)));
        }
        case config::OptimizerKind::kLion: {
            Sum mixed, first;
            mixed.add(config.beta1 * before.first);
            mixed.add((1 - config.beta1) * gradient);
            first.add(config.beta2 * before.first);
            first.add((1 - config.beta2) * gradient);
            const double worst = error(after.first, first, 8 * kUnit * sum.size);
            // Its sign may fall either way where the terms cancel.
            if (std::abs(mixed.value) <= 16 * kUnit * mixed.size) return worst;
            const double kept = before.parameter * (1 - facts.lr * config.weight_decay);
            return std::max(
                worst, moved(after.parameter, kept, facts.lr * (mixed.value > 0 ? 1.0 : -1.0)));
        }
        case config::OptimizerKind::kOneBitAdam:
        case config::OptimizerKind::kZeroOneAdam:
        case config::OptimizerKind::kOneBitLamb:
            break;  // their jobs are not verified
        case config::OptimizerKind::kSgd: {
            double direction = gradient, worst = 0;
            if (config.momentum != 0) {
                Sum first;
                first.add(facts.update == 1 ? 0 : config.momentum * before.first);
                first.add((facts.update == 1 ? 1 : 1 - config.dampening) * gradient);
                worst = error(after.first, first, 8 * kUnit * sum.size);
                direction =
                    config.nesterov ? gradient + config.momentum * after.first : after.first;
            }
            Sum parameter;
            parameter.add(before.parameter);
            parameter.add(-facts.lr * direction);
            const double slack = facts.lr * 16 * kUnit * (std::abs(direction) + sum.size);
            return std::max(worst, error(after.parameter, parameter, slack));
        }
        case config::OptimizerKind::kLamb:
        case config::OptimizerKind::kMuon:
        case config::OptimizerKind::kAdafactor:
            break;
    }
    return INFINITY;
}

}  // namespace dslaunch::job
