// Optimizers that LibTorch does not have, as in their papers or their authors' code: references in
// fp64 for training_reference.h.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "config/run/run_config.h"

namespace dslaunch::testing {

using namespace config;

// Lion as in its paper (Chen et al. 2023, algorithm 2).
class LionReference final : public torch::optim::Optimizer {
  public:
    LionReference(const std::vector<at::Tensor>& parameters, const OptimizerConfig& config)
        : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                    std::make_unique<torch::optim::SGDOptions>(config.lr)),
          config_(config) {}

    at::Tensor step(LossClosure /*closure*/ = nullptr) override {
        const at::NoGradGuard no_grad;
        for (at::Tensor& p : param_groups()[0].params()) {
            const at::Tensor g = p.grad();
            if (!g.defined()) continue;
            at::Tensor& m =
                momentum_.try_emplace(p.unsafeGetTensorImpl(), at::zeros_like(p)).first->second;
            const at::Tensor way = (config_.beta1 * m + (1 - config_.beta1) * g).sign();
            m = config_.beta2 * m + (1 - config_.beta2) * g;
            p.sub_(config_.lr * (way + config_.weight_decay * p));
        }
        return {};
    }

  private:
    OptimizerConfig config_;
    std::map<void*, at::Tensor> momentum_;
};

// LAMB as in DeepSpeed's FusedLamb (You et al. 2020, algorithm 2, with bounds).
class LambReference final : public torch::optim::Optimizer {
  public:
    LambReference(const std::vector<at::Tensor>& parameters, const OptimizerConfig& config)
        : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                    std::make_unique<torch::optim::SGDOptions>(config.lr)),
          config_(config) {}

    at::Tensor step(LossClosure /*closure*/ = nullptr) override {
        const at::NoGradGuard no_grad;
        for (at::Tensor& p : param_groups()[0].params()) {
            const at::Tensor g = p.grad();
            if (!g.defined()) continue;
            State& s = states_[p.unsafeGetTensorImpl()];
            if (!s.m.defined()) s.m = at::zeros_like(p), s.v = at::zeros_like(p);
            ++s.step;
            s.m = config_.beta1 * s.m + (1 - config_.beta1) * g;
            s.v = config_.beta2 * s.v + (1 - config_.beta2) * g * g;
            const at::Tensor root =
                config_.eps_inside_sqrt ? (s.v + config_.eps).sqrt() : s.v.sqrt() + config_.eps;
            const at::Tensor update = s.m / root + config_.weight_decay * p;
            const double weights = p.norm().item<double>(), size = update.norm().item<double>();
            double ratio = 1;
            if (weights != 0 && size != 0)
                ratio = std::min(std::max(weights / size, config_.min_coeff), config_.max_coeff);
            const double rate = config_.bias_correction
                                    ? config_.lr * std::sqrt(1 - std::pow(config_.beta2, s.step)) /
                                          (1 - std::pow(config_.beta1, s.step))
                                    : config_.lr;
            p.sub_(rate * ratio * update);
        }
        return {};
    }

  private:
    struct State {
        at::Tensor m, v;
        int step = 0;
    };
    OptimizerConfig config_;
    std::map<void*, State> states_;
};

// Muon as in its author's code for matrices, AdamW for vectors.
class MuonReference final : public torch::optim::Optimizer {
  public:
    MuonReference(const std::vector<at::Tensor>& parameters, const OptimizerConfig& config)
        : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                    std::make_unique<torch::optim::SGDOptions>(config.lr)),
          config_(config) {
        std::vector<at::Tensor> vectors;
        for (const at::Tensor& parameter : parameters)
            if (parameter.dim() < 2) vectors.push_back(parameter);
        rest_ = std::make_unique<torch::optim::AdamW>(vectors,
                                                      torch::optim::AdamWOptions(config.rest_lr)
                                                          .betas({config.beta1, config.beta2})
                                                          .eps(config.eps)
                                                          .weight_decay(config.weight_decay));
    }

    at::Tensor step(LossClosure /*closure*/ = nullptr) override {
        rest_->step();
        const at::NoGradGuard no_grad;
        for (at::Tensor& p : param_groups()[0].params()) {
            const at::Tensor g = p.grad();
            if (!g.defined() || p.dim() < 2) continue;
            at::Tensor& m = momentum_[p.unsafeGetTensorImpl()];
            if (!m.defined()) m = at::zeros_like(p);
            m = config_.momentum * m + (1 - config_.momentum) * g;
            at::Tensor x = (1 - config_.momentum) * g + config_.momentum * m;
            const bool tall = p.size(0) > p.size(1);
            if (tall) x = x.t();
            x = x / (x.norm() + 1e-7);
            for (int i = 0; i < 5; ++i) {
                const at::Tensor a = x.matmul(x.t());
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a.matmul(a)).matmul(x);
            }
            if (tall) x = x.t();
            const double ratio = static_cast<double>(p.size(0)) / static_cast<double>(p.size(1));
            p.mul_(1 - config_.lr * config_.weight_decay);
            p.sub_(config_.lr * std::sqrt(std::max(1.0, ratio)) * x);
        }
        return {};
    }

  private:
    OptimizerConfig config_;
    std::unique_ptr<torch::optim::AdamW> rest_;
    std::map<void*, at::Tensor> momentum_;
};

// Adafactor as in transformers (Shazeer & Stern 2018, algorithms 4 and 5).
class AdafactorReference final : public torch::optim::Optimizer {
  public:
    AdafactorReference(const std::vector<at::Tensor>& parameters, const OptimizerConfig& config)
        : Optimizer({torch::optim::OptimizerParamGroup(parameters)},
                    std::make_unique<torch::optim::SGDOptions>(config.lr)),
          config_(config) {}

    at::Tensor step(LossClosure /*closure*/ = nullptr) override {
        const at::NoGradGuard no_grad;
        for (at::Tensor& p : param_groups()[0].params()) {
            const at::Tensor g = p.grad();
            if (!g.defined()) continue;
            State& s = states_[p.unsafeGetTensorImpl()];
            ++s.step;
            const AdafactorConfig& own = config_.adafactor;
            const double lr =
                config_.lr * (own.scale_parameter ? std::max(own.scale_eps, rms(p)) : 1.0);
            at::Tensor update = direction(g, s);
            update = update / std::max(1.0, rms(update) / own.clip_threshold) * lr;
            if (own.first_moment) {
                if (!s.m.defined()) s.m = at::zeros_like(p);
                s.m = config_.beta1 * s.m + (1 - config_.beta1) * update;
                update = s.m;
            }
            p.sub_(config_.weight_decay * lr * p);
            p.sub_(update);
        }
        return {};
    }

  private:
    struct State {
        at::Tensor row, column, v, m;
        int step = 0;
    };
    static double rms(const at::Tensor& values) {
        return values.norm().item<double>() / std::sqrt(static_cast<double>(values.numel()));
    }
    at::Tensor direction(const at::Tensor& g, State& s) const {
        const double keep = 1 - std::pow(s.step, config_.adafactor.decay_rate);
        const at::Tensor squares = g * g + config_.adafactor.square_eps;
        const auto mix = [keep](at::Tensor& moment, const at::Tensor& value) {
            moment = moment.defined() ? keep * moment + (1 - keep) * value : (1 - keep) * value;
        };
        if (g.dim() < 2) {
            mix(s.v, squares);
            return g / s.v.sqrt();
        }
        mix(s.row, squares.mean(-1));
        mix(s.column, squares.mean(-2));
        const at::Tensor rows = (s.row / s.row.mean(-1, true)).rsqrt().unsqueeze(-1);
        return rows * s.column.rsqrt().unsqueeze(-2) * g;
    }

    OptimizerConfig config_;
    std::map<void*, State> states_;
};

}  // namespace dslaunch::testing
