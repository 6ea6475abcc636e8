// Decides what hosts exchange in each update of 1-bit Adam, 1-bit LAMB and 0/1 Adam (other
// optimizers always exchange gradients in full), and which units each update changes if updates may
// lag. Both depend only on the number of the update, so a resumed run continues correctly. Sources:
// Tang et al. 2021 (1-bit Adam), algorithm 1; Li et al. 2021 (1-bit LAMB), algorithm 2; Lu et al.
// 2022 (0/1 Adam), algorithm 1, with DeepSpeed's intervals, which double. Data path: run config ->
// [here] -> step plans, ZeRO state. No LibTorch. One thread.
#pragma once

#include <cstdint>

#include "config/run/run_config.h"
#include "plan/exchange/exchange.h"
#include "plan/step/lagging.h"

namespace dslaunch::runtime {

// The form in which hosts exchange gradients, update by update.
class ExchangeSchedule {
  public:
    // HOSTS is the number of hosts that train the same parameters. If HOSTS is 1, there is nothing
    // to exchange, so of() returns kNone instead of a compressed exchange.
    ExchangeSchedule(const config::OptimizerConfig& optimizer, int hosts)
        : optimizer_(optimizer), hosts_(hosts) {}

    // Returns the exchange of UPDATE, which counts from 1. Fast if updates are requested in order.
    [[nodiscard]] plan::Exchange of(int64_t update);
    // Returns the first update of 0/1 Adam in which hosts may update without an exchange, or -1 for
    // other optimizers.
    [[nodiscard]] static int64_t first_alone(const config::OptimizerConfig& optimizer);

    // Returns the memory that the plans of a job on HOSTS hosts need in addition to the optimizer's
    // states.
    [[nodiscard]] static plan::CompressionRoom room(const config::OptimizerConfig& optimizer,
                                                    int hosts);

  private:
    [[nodiscard]] plan::Exchange next_zero_one();

    config::OptimizerConfig optimizer_;
    int hosts_;
    // The state of 0/1 Adam. `update_` is the last requested update, and `exchange_` is its
    // exchange. The intervals are the numbers of updates between two exchanges. An interval doubles
    // when its count of uses reaches a configured number.
    int64_t update_ = 0;
    plan::Exchange exchange_ = plan::Exchange::kExact;
    int64_t variance_interval_ = 1;
    int64_t variance_uses_ = 0;
    int64_t local_interval_ = 1;
    int64_t local_uses_ = 0;
};

// Returns which units of the weights UPDATE (counted from 1) changes under ZenFlow. ZenFlow changes
// unimportant units less often. Each warm-up update changes all units; there is at least one. The
// important units are chosen in the last warm-up update and then every select_interval updates. The
// other units change every update_interval updates, or one update later if updates overlap.
[[nodiscard]] plan::LagPlan lag_of(const config::LaggingConfig& config, int64_t update);

}  // namespace dslaunch::runtime
