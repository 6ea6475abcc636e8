// The step that updates a rank's part of the optimizer states and parameters: Adam, AdamW, SGD,
// Adagrad, Lion in fp32. The states are the caller's (state_store.h). Parameters that got no
// gradient in a step are left alone, as PyTorch does, so each keeps its own step count.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/run/run_config.h"
#include "kernels/flat_optimizer.h"
#include "kernels/thread_team.h"

namespace dslaunch::zero {

class ShardOptimizer {
  public:
    // THREADS share an update, the caller's among them.
    explicit ShardOptimizer(const config::OptimizerConfig& config, int threads = 1);

    // fp32 values per parameter that CONFIG needs: Adam 2, Adagrad and Lion 1, SGD with momentum 1,
    // without 0.
    [[nodiscard]] static int64_t states_per_parameter(const config::OptimizerConfig& config);
    // "adamw", …
    [[nodiscard]] static std::string name(const config::OptimizerConfig& config);
    // What torch.optim calls them: "exp_avg", …
    [[nodiscard]] static std::vector<std::string> state_names(
        const config::OptimizerConfig& config);
    // Whether value K (0, 1) is a mean or a sum of squares: never negative, and divided by.
    [[nodiscard]] static bool is_square(const config::OptimizerConfig& config, size_t k);
    // What the first of them is before the first step; the second is 0.
    [[nodiscard]] static float initial_state(const config::OptimizerConfig& config);

    // Updates RANGE, from 0 on and with its states, with the learning rate LR as the slice's
    // STEP-th update (from 1). By one thread at a time.
    void update(const kernels::FlatRange& range, double lr, int64_t step);

  private:
    void update_part(const kernels::FlatRange& range, double lr, int64_t step) const;

    config::OptimizerConfig config_;
    std::unique_ptr<kernels::ThreadTeam> team_;
};

}  // namespace dslaunch::zero
