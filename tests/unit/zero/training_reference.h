// Trains the small model of training_world.h in one process with torch::optim in fp64. Ranks must
// reach the same result.
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

#include "optimizer_references.h"
#include "optimizers.h"
#include "support/catch.h"
#include "support/every_nth.h"
#include "training_world.h"

namespace dslaunch::testing {

using namespace config;

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
    if (config.kind == OptimizerKind::kAdafactor)
        return std::make_unique<AdafactorReference>(parameters, config);
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
                                                         .amsgrad(config.amsgrad)
                                                         .weight_decay(config.weight_decay));
    }
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(config.lr)
                                                                .betas(betas)
                                                                .eps(config.eps)
                                                                .amsgrad(config.amsgrad)
                                                                .weight_decay(config.weight_decay));
}

// Returns the loss of the small model, written once more in ATen, in fp64.
inline at::Tensor reference_loss(const Parameters& p, int64_t micro_batch) {
    const std::vector<c10::IValue> batch = small_batch(micro_batch);
    const at::Tensor x = batch[0].toTensor().to(at::kDouble),
                     y = batch[1].toTensor().to(at::kDouble);
    at::Tensor h = at::tanh(at::matmul(x, p.at("w1")) + p.at("b1"));
    if (x[0][0].item<double>() > 0.5) h = h + p.at("extra");
    const at::Tensor z = at::matmul(at::tanh(at::matmul(h * p.at("gain"), p.at("w2"))), p.at("w3"));
    return (z - y).square().mean();
}

// Trains in the simplest way: one update per step, by the mean gradient of all micro batches.
// Training on any number of ranks must give the same result.
inline RankOutcome train_reference(const TrainingCase& job) {
    // With such small matrices, several threads would only wait for each other.
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

// The bound for the difference between the ranks (fp32) and the reference (fp64). A gradient's
// relative error is about 1e-6 (sums of at most 8 * 2 terms and 20-term products), or up to 1e-4 if
// terms cancel. An Adam update moves a parameter by about lr = 0.01 at most; 1e-4 of that is 1e-6,
// and 6e-6 over 6 steps. SGD moves by 0.1 * gradient, with the gradient's absolute error of 1e-7 *
// 6 * 1 / (1 - momentum). 2e-5 covers both. A wrong factor, decay or step count causes 1e-4 and
// more.
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

// Calls CHECK for each optimizer and each way to clip that CASES takes, first with gradients
// reduced once a step, then in each micro step.
inline void for_each_optimizer(const std::vector<int>& sizes, int64_t accumulation,
                               const std::vector<double>& clippings,
                               const std::function<void(const TrainingCase&)>& check,
                               test::EveryNth& cases) {
    for (const OptimizerConfig& config :
         {kAdamW, kAdamL2, kSgd, momentum_sgd(0.9, 0, false), momentum_sgd(0.9, 0.3, false),
          momentum_sgd(0.8, 0, true), kAdagrad, kLion, kAmsgrad}) {
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
