// The update of a rank's part of the optimizer states and parameters, element by element: Adam,
// AdamW, SGD, Adagrad, Lion, 1-bit Adam, 0/1 Adam in fp32 (whole tensors: tensor_optimizer.h). The
// states are the caller's (state_store.h). Parameters that got no gradient in a step are left
// alone, as in PyTorch, so each keeps its own step count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run/run_config.h"
#include "device/queue.h"
#include "kernels/flat_optimizer.h"
#include "plan/exchange/exchange.h"

namespace dslaunch::zero {

class ShardOptimizer {
  public:
    // The updates are QUEUE's work. It must outlive this.
    ShardOptimizer(const config::OptimizerConfig& config, device::Queue& queue)
        : config_(config), queue_(queue) {}

    // Returns the number of fp32 values per parameter that CONFIG needs: Adam and LAMB 2, Adagrad
    // and Lion 1, SGD with momentum 1, without momentum 0; Muon 2, but its matrices use only the
    // first; Adafactor with a first moment 1, else 0. tensor_states.h has further ones of tensors.
    [[nodiscard]] static int64_t states_per_parameter(const config::OptimizerConfig& config);
    // Returns "adamw" and the like.
    [[nodiscard]] static std::string name(const config::OptimizerConfig& config);
    // Returns torch.optim's names, such as "exp_avg", of all states that a run needs to go on.
    [[nodiscard]] static std::vector<std::string> state_names(
        const config::OptimizerConfig& config);
    // True if value K (0, 1) is a mean or a sum of squares, which is never negative and is divided
    // by.
    [[nodiscard]] static bool is_square(const config::OptimizerConfig& config, size_t k);
    // Returns the value of the first state before the first step. The second starts at 0.
    [[nodiscard]] static float initial_state(const config::OptimizerConfig& config);

    // Updates RANGE, from 0 on and with its states, with the learning rate LR as the slice's
    // STEP-th update (from 1). BETAS, if given, take the place of the config's. EXCHANGE is the
    // step's: unless it is kExact, 1-bit Adam and 0/1 Adam leave the variance as it is, and with
    // kMomentum the gradients are the next momentum. One thread at a time may call it. REQUIRES:
    // the config needs no whole tensors.
    void update(kernels::FlatRange range, double lr, int64_t step,
                const std::optional<config::Betas>& betas = {},
                plan::Exchange exchange = plan::Exchange::kExact);
    // Returns the step of Adam or AdamW that update() does, as the last of STEPS whose mean
    // gradient it takes. REQUIRES: the optimizer is one of both.
    [[nodiscard]] kernels::AdamStep adam(double lr, int64_t step,
                                         const std::optional<config::Betas>& betas,
                                         int64_t steps = 1) const;
    // Mixes the gradients of RANGE into the momentum alone. REQUIRES: the optimizer compresses.
    void mix(const kernels::FlatRange& range, const std::optional<config::Betas>& betas);

  private:
    [[nodiscard]] kernels::AdamStep without_correction(double lr, double beta1) const;

    config::OptimizerConfig config_;
    device::Queue& queue_;
};

}  // namespace dslaunch::zero
