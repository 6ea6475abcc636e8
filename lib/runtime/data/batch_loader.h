// A rank's data thread: it makes the rank's micro batches in the order of training, ahead of the
// steps that use them. Data path: DataSets -> BatchLoader -> trainer. Threads: one thread calls
// take(); any thread may call waited().
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "config/run/run_config.h"
#include "runtime/data/data_source.h"
#include "runtime/data/prefetcher.h"
#include "storage/tokens/sample_order.h"

namespace dslaunch::runtime {

// Makes batches ahead; see the top of this file.
class BatchLoader {
  public:
    // The rows of a rank, and the place in training from which it continues.
    struct Options {
        config::BatchConfig batch;
        int64_t rank = 0;  // 0 <= rank < batch.data_parallel_size; equal on tensor and stage peers
        uint64_t seed = 0;
        bool shuffle = true;
        // The steps already done, and the rows that these steps used: a resumed run continues after
        // them.
        int64_t first_step = 0;
        int64_t first_row = 0;
        int64_t depth = 2;  // largest number of ready micro batches, which use memory
    };

    // Starts the thread. Rank 0 warns if there are fewer samples than one step uses. REQUIRES:
    // train.rows() >= 1, 0 <= rank < data_parallel_size.
    BatchLoader(DataSource train, const Options& options);

    // Returns this rank's micro batch of STEP (from 0) and MICRO_STEP; see DataSource::batch.
    // Blocks until it is ready, and adds the time to waited(). Calls may come in any order, but
    // only the order of training is fast. Rethrows an error of the thread. REQUIRES: 0 <=
    // micro_step < accumulation_steps.
    [[nodiscard]] std::vector<c10::IValue> take(int64_t step, int64_t micro_step);

    // Returns the total time for which take() has blocked.
    [[nodiscard]] Duration waited() const { return prefetcher_.waited(); }

    // Returns the indices of the samples from which the rows of take()'s micro batch are made.
    [[nodiscard]] std::vector<int64_t> samples_of(int64_t step, int64_t micro_step) const;

  private:
    [[nodiscard]] std::vector<c10::IValue> make(int64_t index) const;

    DataSource train_;
    Options options_;
    storage::SampleOrder order_;
    Prefetcher<std::vector<c10::IValue>> prefetcher_;  // last: its thread uses the other members
};

}  // namespace dslaunch::runtime
