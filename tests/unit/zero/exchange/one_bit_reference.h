// 1-bit Adam, 0/1 Adam and 1-bit LAMB as in their papers and DeepSpeed's code, but without the
// parts of DeepSpeed's code that docs/decisions/016 leaves out. Everything is computed in one
// process and element by element. Hosts must reach this result to the last bit. Two ways of
// rounding could give different signs, so rounding is the kernels' rounding.
// tests/parity/onebit_deepspeed.py compares the algorithms with DeepSpeed's own code. Sources: Tang
// et al. 2021, Lu et al. 2022, Li et al. 2021; deepspeed/runtime/fp16/onebit.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "unit/zero/exchange/one_bit_hosts.h"

namespace dslaunch::testing {

class OneBitReference : public OneBitHosts {
  public:
    using OneBitHosts::OneBitHosts;

    // Makes update T, counted from 1. Returns the mean loss.
    double step(int64_t t) {
        std::map<std::string, std::vector<Floats>> gradients = gradients_of_hosts(t - 1);
        clip(gradients);
        if (config_.kind == OptimizerKind::kZeroOneAdam) {
            zero_one_adam(t, gradients);
        } else {
            frozen_after_warm_up(t, gradients);
        }
        return loss_;
    }

  private:
    // Makes an update of 1-bit Adam or 1-bit LAMB.
    void frozen_after_warm_up(int64_t t,
                              const std::map<std::string, std::vector<Floats>>& gradients) {
        const bool lamb = config_.kind == OptimizerKind::kOneBitLamb;
        const int64_t warm = std::max<int64_t>(1, config_.one_bit.freeze_step);
        exact_ = t + 1 <= warm;
        for (auto& [name, of] : all_) {
            const std::vector<Floats>& own = gradients.at(name);
            if (t <= warm) {
                lamb ? exact_lamb(of, own) : exact(of, own);
                continue;
            }
            const Floats before = of.m[0];
            for (size_t h = 0; h < hosts_; ++h) mix(of.m[h], own[h]);
            of.m.assign(hosts_, average(of.m, of));
            if (lamb) {
                frozen_lamb(of, before);
            } else {
                for (size_t h = 0; h < hosts_; ++h) move(of, h);
            }
        }
    }

    // Returns the direction of 1-bit LAMB, which is equal on all hosts.
    [[nodiscard]] Floats direction(const OneBitParameter& of) const {
        Floats way(of.v.size());
        for (size_t i = 0; i < way.size(); ++i) way[i] = of.m[0][i] / denominator(of, i);
        return way;
    }
    void decay(const OneBitParameter& of, Floats& way) const {
        const auto weight_decay = static_cast<float>(config_.weight_decay);
        for (size_t i = 0; i < way.size(); ++i) way[i] += of.p[0][i] * weight_decay;
    }
    [[nodiscard]] static double norm(const Floats& values) {
        double lanes[16] = {};
        for (size_t i = 0; i < values.size(); ++i)
            lanes[i % 16] += double{values[i]} * double{values[i]};
        double squares = 0;
        for (const double lane : lanes) squares += lane;
        return std::sqrt(squares);
    }
    void move_all(OneBitParameter& of, const Floats& way, double rate) const {
        const auto lr = static_cast<float>(rate);
        for (size_t i = 0; i < way.size(); ++i) of.p[0][i] = std::fma(-lr, way[i], of.p[0][i]);
        of.p.assign(hosts_, of.p[0]);
    }

    void exact_lamb(OneBitParameter& of, const std::vector<Floats>& gradients) const {
        const auto rest = static_cast<float>(1 - config_.beta2);
        const auto beta2 = static_cast<float>(config_.beta2);
        const Floats& g = gradients[0];
        for (size_t i = 0; i < g.size(); ++i)
            of.v[i] = std::fma(rest * g[i], g[i], of.v[i] * beta2);
        for (Floats& m : of.m) mix(m, g);
        Floats way = direction(of);
        decay(of, way);
        const double weights = norm(of.p[0]), size = norm(way);
        double ratio = 1;
        if (weights > 0 && size > 0) {
            ratio = std::clamp(weights / size, config_.min_coeff, config_.max_coeff);
            const double keep = config_.one_bit.coeff_beta;
            of.ratio_sum = static_cast<float>(keep * of.ratio_sum + (1 - keep) * ratio);
            of.ratio_weights = static_cast<float>(keep * of.ratio_weights + (1 - keep));
        }
        move_all(of, way, config_.lr * ratio);
        of.fresh = of.v;
        of.factor = 1;
    }

    void frozen_lamb(OneBitParameter& of, const Floats& before) const {
        const auto beta1 = static_cast<float>(config_.beta1);
        const auto inverse = static_cast<float>(1 / (1 - config_.beta1));
        const auto beta2 = static_cast<float>(config_.beta2);
        const auto rest = static_cast<float>(1 - config_.beta2);
        float largest = 0;
        for (size_t i = 0; i < of.v.size(); ++i) {
            if (of.v[i] == 0)
                for (Floats& m : of.m) m[i] = 0;
            const float g = (of.m[0][i] - beta1 * before[i]) * inverse;
            of.fresh[i] = std::fma(rest * g, g, of.fresh[i] * beta2);
            if (of.v[i] == 0) continue;
            const float fresh = std::sqrt(of.fresh[i]) + static_cast<float>(config_.eps);
            largest = std::max(largest, denominator(of, i) / fresh);
        }
        Floats way = direction(of);
        const double without = norm(way);
        decay(of, way);
        const OneBitConfig& one_bit = config_.one_bit;
        const double last = of.factor;
        double factor = largest;
        if (config_.weight_decay > 0) {
            const double share = std::min(1.0, without / norm(way));
            factor = factor * share + 1 - share;
        }
        factor = std::clamp(factor, one_bit.factor_min, one_bit.factor_max);
        factor = std::clamp(factor, last * (1 - one_bit.factor_threshold),
                            last * (1 + one_bit.factor_threshold));
        of.factor = static_cast<float>(factor);
        move_all(of, way, config_.lr * (double{of.ratio_sum} / double{of.ratio_weights}) * factor);
    }

    void zero_one_adam(int64_t t, const std::map<std::string, std::vector<Floats>>& gradients) {
        const bool meets = frozen_ && t % local_interval_ == 0;
        const bool full = !frozen_ && t % variance_interval_ == 0;
        if (frozen_) rates_ += config_.lr;
        for (auto& [name, of] : all_) {
            const std::vector<Floats>& own = gradients.at(name);
            if (full) {
                exact(of, own);
            } else if (!frozen_) {
                const Floats g = average(own, of);
                for (size_t h = 0; h < hosts_; ++h) {
                    mix(of.m[h], g);
                    move(of, h);
                }
                of.met = of.p[0];
            } else {
                alone(of, own, meets);
            }
        }
        if (meets) rates_ = 0;
        if (full && ++variance_counter_ == config_.one_bit.var_update_scaler) {
            variance_counter_ = 0;
            variance_interval_ *= 2;
        }
        if (frozen_ && ++local_counter_ == config_.one_bit.local_step_scaler) {
            local_counter_ = 0;
            local_interval_ = std::min(config_.one_bit.local_step_clipper, 2 * local_interval_);
        }
        if (!frozen_ && t > config_.one_bit.var_freeze_step) {
            frozen_ = true;
            for (auto& [name, of] : all_) {
                for (Floats& error : of.worker_error) std::ranges::fill(error, 0.0F);
                std::ranges::fill(of.server_error, 0.0F);
            }
        }
        exact_ = !frozen_ && (t + 1) % variance_interval_ == 0;
    }

    void alone(OneBitParameter& of, const std::vector<Floats>& gradients, bool meets) {
        for (size_t h = 0; h < hosts_; ++h) {
            mix(of.m[h], gradients[h]);
            move(of, h);
        }
        if (!meets) return;
        std::vector<Floats> moved = of.p;
        for (size_t h = 0; h < hosts_; ++h)
            for (size_t i = 0; i < of.v.size(); ++i)
                moved[h][i] = (of.p[h][i] - of.met[i]) * denominator(of, i);
        const Floats u = average(moved, of);
        const auto rates = static_cast<float>(rates_);
        // The momentum is the mean of the steps without their weight decay. DeepSpeed's momentum
        // includes it.
        const auto decay = static_cast<float>(config_.weight_decay);
        for (size_t i = 0; i < of.v.size(); ++i) {
            const float d = denominator(of, i);
            const bool trained = of.v[i] > 0;
            for (size_t h = 0; h < hosts_; ++h)
                of.m[h][i] = trained ? -u[i] / rates - decay * of.met[i] * d : 0.0F;
            of.met[i] += trained ? u[i] / d : 0.0F;
        }
        of.p.assign(hosts_, of.met);
    }

    // Used by 0/1 Adam.
    bool frozen_ = false;
    int64_t variance_interval_ = 1, variance_counter_ = 0;
    int64_t local_interval_ = 1, local_counter_ = 0;
    double rates_ = 0;
};

}  // namespace dslaunch::testing
