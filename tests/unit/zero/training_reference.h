// The small model of training_world.h trained in one process by torch::optim in fp64: the result
// that the ranks must reach.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "training_world.h"

#include "optimizers.h"
#include "support/catch.h"
#include "support/every_nth.h"

namespace dslaunch::testing {

using namespace config;

// Lion as its paper writes it (Chen et al. 2023, algorithm 2).
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

// LAMB as DeepSpeed's FusedLamb writes it (You et al. 2020, algorithm 2, with bounds).
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
            const at::Tensor update = s.m / (s.v.sqrt() + config_.eps) + config_.weight_decay * p;
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

// Muon as its author writes it for matrices, AdamW for vectors.
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

inline std::unique_ptr<torch::optim::Optimizer> reference_optimizer(
    const OptimizerConfig& config, const std::vector<at::Tensor>& parameters) {
    const std::tuple<double, double> betas{config.beta1, config.beta2};
    if (config.kind == OptimizerKind::kSgd) {
        return std::make_unique<torch::optim::SGD>(parameters,
                                                   torch::optim::SGDOptions(config.lr)
                                                       .momentum(config.momentum)
                                                       .dampening(config.dampening)
                                                       .weight_decay(config.weight_decay)
                                                       .nesterov(config.nesterov));
    }
    if (config.kind == OptimizerKind::kLion)
        return std::make_unique<LionReference>(parameters, config);
    if (config.kind == OptimizerKind::kLamb)
        return std::make_unique<LambReference>(parameters, config);
    if (config.kind == OptimizerKind::kMuon)
        return std::make_unique<MuonReference>(parameters, config);
    if (config.kind == OptimizerKind::kAdagrad) {
        return std::make_unique<torch::optim::Adagrad>(
            parameters, torch::optim::AdagradOptions(config.lr)
                            .lr_decay(config.lr_decay)
                            .eps(config.eps)
                            .weight_decay(config.weight_decay)
                            .initial_accumulator_value(config.initial_accumulator_value));
    }
    if (config.kind == OptimizerKind::kAdamW) {
        return std::make_unique<torch::optim::AdamW>(parameters,
                                                     torch::optim::AdamWOptions(config.lr)
                                                         .betas(betas)
                                                         .eps(config.eps)
                                                         .weight_decay(config.weight_decay));
    }
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(config.lr)
                                                                .betas(betas)
                                                                .eps(config.eps)
                                                                .weight_decay(config.weight_decay));
}

// The model written a second time, in ATen, fp64.
inline at::Tensor reference_loss(const Parameters& p, int64_t micro_batch) {
    const std::vector<c10::IValue> batch = small_batch(micro_batch);
    const at::Tensor x = batch[0].toTensor().to(at::kDouble),
                     y = batch[1].toTensor().to(at::kDouble);
    at::Tensor h = at::tanh(at::matmul(x, p.at("w1")) + p.at("b1"));
    if (x[0][0].item<double>() > 0.5) h = h + p.at("extra");
    const at::Tensor z = at::matmul(at::tanh(at::matmul(h * p.at("gain"), p.at("w2"))), p.at("w3"));
    return (z - y).square().mean();
}

// Trains by the mean gradient of all micro batches of a step, then one update: any split over ranks
// must equal it.
inline RankOutcome train_reference(const TrainingCase& job) {
    // Threads of matrices this small only wait for each other.
    at::set_num_threads(1);
    Parameters parameters;
    std::vector<at::Tensor> list;
    for (const auto& [name, tensor] : initial_parameters()) {
        parameters[name] = tensor.to(at::kDouble).set_requires_grad(true);
        list.push_back(parameters[name]);
    }
    const auto optimizer = reference_optimizer(job.optimizer, list);
    const int64_t micro_batches = job.accumulation * job.world_size();
    RankOutcome outcome;
    for (int64_t step = 0; step < job.steps; ++step) {
        optimizer->zero_grad(/*set_to_none=*/true);
        outcome.loss = 0;
        for (int64_t m = 0; m < micro_batches; ++m) {
            const at::Tensor loss = reference_loss(parameters, step * micro_batches + m);
            outcome.loss += loss.item<double>() / static_cast<double>(micro_batches);
            (loss / static_cast<double>(micro_batches)).backward();
        }
        for (const auto& [name, tensor] : parameters)
            outcome.updates[name] += tensor.grad().defined() ? 1 : 0;
        if (job.clipping > 0) {
            std::vector<at::Tensor> with_gradient;
            for (const at::Tensor& tensor : list)
                if (tensor.grad().defined()) with_gradient.push_back(tensor);
            outcome.norm = torch::nn::utils::clip_grad_norm_(with_gradient, job.clipping);
        }
        optimizer->step();
    }
    for (const auto& [name, tensor] : parameters) outcome.parameters[name] = tensor.detach();
    return outcome;
}

// The ranks compute in fp32, the reference in fp64. A gradient's relative error is some 1e-6 (sums
// of at most 8 * 2 terms and 20-term products), up to 1e-4 where terms cancel; an Adam update moves
// a parameter by at most about lr = 0.01 and errs by 1e-4 of that, over 6 steps 6e-6. SGD moves by
// 0.1 * gradient with the gradient's absolute error of 1e-7 * 6 * 1 / (1 - momentum). 2e-5 covers
// both; a wrong factor, decay or step count shows at 1e-4 and more.
inline constexpr double kTolerance = 2e-5;

inline void check_near(const RankOutcome& rank, const RankOutcome& reference) {
    CHECK(std::abs(rank.loss - reference.loss) < kTolerance);
    CHECK(rank.updates == reference.updates);
    CHECK(rank.norm.has_value() == reference.norm.has_value());
    if (reference.norm) CHECK(*rank.norm == Approx(*reference.norm).epsilon(1e-4));
    for (const auto& [name, tensor] : reference.parameters) {
        INFO(name);
        const double error =
            (rank.parameters.at(name).to(at::kDouble) - tensor).abs().max().item<double>();
        CHECK(error < kTolerance);
    }
}

// CHECK for those of CASES of each optimizer and way to clip, with gradients reduced once a step
// and in each micro step.
inline void for_each_optimizer(const std::vector<int>& sizes, int64_t accumulation,
                               const std::vector<double>& clippings,
                               const std::function<void(const TrainingCase&)>& check,
                               test::EveryNth& cases) {
    for (const OptimizerConfig& config :
         {kAdamW, kAdamL2, kSgd, momentum_sgd(0.9, 0, false), momentum_sgd(0.9, 0.3, false),
          momentum_sgd(0.8, 0, true), kAdagrad, kLion}) {
        for (const double clipping : clippings) {
            if (!cases.takes_next()) continue;
            TrainingCase job{fmt::format("optimizer {} momentum {} clipping {}",
                                         static_cast<int>(config.kind), config.momentum, clipping),
                             sizes, config, accumulation, clipping};
            check(job);
            job.micro_step = true;
            job.name += ", reduced each micro step";
            check(job);
        }
    }
}

}  // namespace dslaunch::testing
