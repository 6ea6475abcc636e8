// Tells what hosts exchange in each update of 1-bit Adam, 1-bit LAMB and 0/1 Adam, while other
// optimizers always exchange gradients in full; and what each update updates if updates may lag.
// Functions of the number of the update alone, so a resumed run goes on where it was.
// Sources: Tang et al. 2021 (1-bit Adam), algorithm 1; Li et al. 2021 (1-bit LAMB), algorithm 2; Lu
// et al. 2022 (0/1 Adam), algorithm 1, with DeepSpeed's intervals, which double. Data path: run
// config -> [here] -> step plans, ZeRO state. No LibTorch. One thread.
#pragma once

#include <cstdint>

#include "config/run/run_config.h"
#include "plan/exchange/exchange.h"
#include "plan/step/lagging.h"

namespace dslaunch::runtime {

class ExchangeSchedule {
  public:
    // HOSTS train the same parameters. One host compresses nothing: if several would, it goes on
    // alone (kNone).
    ExchangeSchedule(const config::OptimizerConfig& optimizer, int hosts)
        : optimizer_(optimizer), hosts_(hosts) {}

    // UPDATE counts from 1. Cheap for updates that follow each other.
    [[nodiscard]] plan::Exchange of(int64_t update);
    // Returns the first update of 0/1 Adam in which hosts step on their own; -1: there is none.
    [[nodiscard]] static int64_t first_alone(const config::OptimizerConfig& optimizer);

    // Returns what plans of such a job hold beside the optimizer's states.
    [[nodiscard]] static plan::CompressionRoom room(const config::OptimizerConfig& optimizer,
                                                    int hosts);

  private:
    [[nodiscard]] plan::Exchange next_zero_one();

    config::OptimizerConfig optimizer_;
    int hosts_;
    // 0/1 Adam: the update that was asked for last, and what follows from the updates before. An
    // interval doubles after as many uses as the config says.
    int64_t update_ = 0;
    plan::Exchange exchange_ = plan::Exchange::kExact;
    int64_t variance_interval_ = 1;
    int64_t variance_uses_ = 0;
    int64_t local_interval_ = 1;
    int64_t local_uses_ = 0;
};

// Returns what UPDATE, from 1, updates if updates may lag (ZenFlow). The first ones, at least one,
// update everything. The last of these and the last step of every later select_interval choose the
// important units. The rest is updated in the last step of every update_interval, or, late, in the
// one after that.
[[nodiscard]] plan::LagPlan lag_of(const config::LaggingConfig& config, int64_t update);

}  // namespace dslaunch::runtime
