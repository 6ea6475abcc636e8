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
    // HOSTS is the number of hosts that train the same parameters. A single host compresses
    // nothing: it exchanges nothing (kNone) in updates in which several hosts would compress.
    ExchangeSchedule(const config::OptimizerConfig& optimizer, int hosts)
        : optimizer_(optimizer), hosts_(hosts) {}

    // Returns the exchange of UPDATE, which counts from 1. Fast if updates are requested in order.
    [[nodiscard]] plan::Exchange of(int64_t update);
    // Returns the first update of 0/1 Adam in which hosts step on their own, or -1 if there is
    // none.
    [[nodiscard]] static int64_t first_alone(const config::OptimizerConfig& optimizer);

    // Returns the memory that the plans of a job on HOSTS hosts need in addition to the optimizer's
    // states.
    [[nodiscard]] static plan::CompressionRoom room(const config::OptimizerConfig& optimizer,
                                                    int hosts);

  private:
    [[nodiscard]] plan::Exchange next_zero_one();

    config::OptimizerConfig optimizer_;
    int hosts_;
    // 0/1 Adam: the update that was requested last, and the state that results from the updates
    // before it. An interval doubles after it was used as often as the config says.
    int64_t update_ = 0;
    plan::Exchange exchange_ = plan::Exchange::kExact;
    int64_t variance_interval_ = 1;
    int64_t variance_uses_ = 0;
    int64_t local_interval_ = 1;
    int64_t local_uses_ = 0;
};

// Returns what UPDATE (from 1) changes if updates may lag (ZenFlow). The first updates, at least
// one, change everything. Important units are chosen in the last of these updates, and later in the
// last step of every select_interval. The other units are updated in the last step of every
// update_interval or, if late, in the step after that.
[[nodiscard]] plan::LagPlan lag_of(const config::LaggingConfig& config, int64_t update);

}  // namespace dslaunch::runtime
