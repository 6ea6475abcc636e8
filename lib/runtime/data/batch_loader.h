// The data thread of a rank: it makes the rank's micro batches in the order of training, ahead of
// the step that takes them. Data path: DataSets -> BatchLoader -> trainer. Threads: one takes; any
// calls waited().
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "config/run/run_config.h"
#include "runtime/data/data_source.h"
#include "runtime/data/prefetcher.h"
#include "storage/files/sample_order.h"

namespace dslaunch::runtime {

class BatchLoader {
  public:
    struct Options {
        config::BatchConfig batch;
        int64_t rank = 0;  // rank among batch.data_parallel_size; tensor and stage peers share it
        uint64_t seed = 0;
        bool shuffle = true;
        // Steps done before, and the rows that they took. A resumed run goes on there.
        int64_t first_step = 0;
        int64_t first_row = 0;
        int64_t depth = 2;  // micro batches ready at most; their memory is the cost
    };

    // Starts the thread. Rank 0 warns if the data are fewer than one step takes. REQUIRES:
    // train.rows() >= 1, 0 <= rank < data_parallel_size.
    BatchLoader(DataSource train, const Options& options);

    // Returns this rank's micro batch of STEP (from 0) and MICRO_STEP; see DataSource::batch.
    // Blocks until it is ready and adds that time to waited(). Any order of calls is right, the
    // order of training is fast. Rethrows an error of the thread. REQUIRES: 0 <= micro_step <
    // accumulation_steps.
    [[nodiscard]] std::vector<c10::IValue> take(int64_t step, int64_t micro_step);

    // Returns the time that take() has blocked since the start.
    [[nodiscard]] Duration waited() const { return prefetcher_.waited(); }

    // Returns the sample in each row of the micro batch that take() gives, as numbers.
    [[nodiscard]] std::vector<int64_t> samples_of(int64_t step, int64_t micro_step) const;

  private:
    [[nodiscard]] std::vector<c10::IValue> make(int64_t index) const;

    DataSource train_;
    Options options_;
    storage::SampleOrder order_;
    Prefetcher<std::vector<c10::IValue>> prefetcher_;  // last: its thread uses the others
};

}  // namespace dslaunch::runtime
