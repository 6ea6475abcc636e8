// The update of a rank's part of the optimizer states and parameters, element by element: Adam,
// AdamW, SGD, Adagrad, Lion, 1-bit Adam and 0/1 Adam in fp32 (whole tensors: tensor_optimizer.h).
// The caller owns the states (state_store.h). As in PyTorch, a parameter without a gradient in a
// step is left unchanged, so each parameter has its own step count.
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

// Updates elements; see the top of this file.
class ShardOptimizer {
  public:
    // The updates run on QUEUE, which must outlive this object.
    ShardOptimizer(const config::OptimizerConfig& config, device::Queue& queue)
        : config_(config), queue_(queue) {}

    // Returns the number of fp32 state values per parameter that CONFIG needs. 3: Adam with
    // amsgrad. 2: Adam without amsgrad, LAMB, and Muon, whose matrices use only the first value. 1:
    // Adagrad, Lion, SGD with momentum, and Adafactor with a first moment. 0: SGD without momentum,
    // and Adafactor without a first moment. tensor_states.h adds the states of whole tensors.
    [[nodiscard]] static int64_t states_per_parameter(const config::OptimizerConfig& config);
    // Returns the optimizer's name, such as "adamw".
    [[nodiscard]] static std::string name(const config::OptimizerConfig& config);
    // Returns the names of all states that a resumed run needs, as in torch.optim: "exp_avg", …
    [[nodiscard]] static std::vector<std::string> state_names(
        const config::OptimizerConfig& config);
    // Returns true if value K (0 to 2) is a mean or a sum of squares. Such values are never
    // negative and are used as divisors.
    [[nodiscard]] static bool is_square(const config::OptimizerConfig& config, size_t k);
    // Returns the initial value of a parameter's first state. The second state starts at 0.
    [[nodiscard]] static float initial_state(const config::OptimizerConfig& config);

    // Updates the elements of RANGE and their states, with the learning rate LR. This is the
    // slice's update number STEP (from 1). BETAS, if given, replace the betas of the config.
    // EXCHANGE is the step's exchange between hosts. Unless it is kExact, 1-bit Adam and 0/1 Adam
    // leave the variance unchanged. If it is kMomentum, RANGE has the next momentum in place of
    // gradients. One thread at a time may call it. REQUIRES: the config needs no whole tensors.
    void update(kernels::FlatRange range, double lr, int64_t step,
                const std::optional<config::Betas>& betas = {},
                plan::Exchange exchange = plan::Exchange::kExact);
    // Returns the arguments for the Adam or AdamW step that update() would make with the mean
    // gradient of STEPS steps. STEP is the last of these steps. REQUIRES: the optimizer is Adam or
    // AdamW.
    [[nodiscard]] kernels::AdamStep adam(double lr, int64_t step,
                                         const std::optional<config::Betas>& betas,
                                         int64_t steps = 1) const;
    // Adds the gradients of RANGE to the momentum, and changes nothing else. REQUIRES: the
    // optimizer compresses.
    void mix(const kernels::FlatRange& range, const std::optional<config::Betas>& betas);

  private:
    [[nodiscard]] kernels::AdamStep without_correction(double lr, double beta1) const;

    config::OptimizerConfig config_;
    device::Queue& queue_;
};

}  // namespace dslaunch::zero
