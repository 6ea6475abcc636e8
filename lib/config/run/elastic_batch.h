// DeepSpeed's section `elasticity`: one batch for a changing number of ranks. Data path: resolve()
// -> [here] -> BatchConfig. Pure.
//
// Source of the rules and of the list of factors: deepspeed/elasticity/elasticity.py in DeepSpeed
// 0.19.6, the last version that had them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dslaunch::config {

// The settings of `elasticity`.
struct ElasticityConfig {
    int64_t train_rows_max = 2000;             // max_train_batch_size
    std::vector<int64_t> micro_rows{2, 4, 6};  // micro_batch_sizes, in any order
    int64_t ranks_min = 1;                     // min_gpus
    int64_t ranks_max = 10'000;                // max_gpus
    int64_t ranks_per_node = 1;                // num_gpus_per_node
    int64_t ranks_of_copy = 1;                 // model_parallel_size
    bool prefers_larger = true;                // prefer_larger_batch
    bool counts_nodes = true;                  // true for version 0.2, false for version 0.1
};

// A batch, and the numbers of ranks that can share it.
struct ElasticBatch {
    int64_t train_rows = 0;       // samples per optimizer step over all ranks
    std::vector<int64_t> copies;  // numbers of ranks with different rows, ascending; never empty

    bool operator==(const ElasticBatch&) const = default;
};

// Returns the batch that the largest number of different rank counts can share; nullopt if no
// batch up to train_rows_max can be shared within the limits. REQUIRES: all numbers are positive,
// and micro_rows is not empty and has no number above elastic_rows_limit().
[[nodiscard]] std::optional<ElasticBatch> elastic_batch(const ElasticityConfig& config);

// Returns the batch for COPIES ranks with different rows. If COPIES ranks can share the batch that
// elastic_batch() returns, returns that batch. Otherwise version 0.2 computes a batch for exactly
// COPIES. Returns nullopt if there is no such batch. REQUIRES: the same as elastic_batch(), and
// COPIES > 0.
[[nodiscard]] std::optional<ElasticBatch> elastic_batch_for(const ElasticityConfig& config,
                                                            int64_t copies);

// Returns the rows of a micro batch: the largest number in micro_rows that divides a rank's rows
// evenly if COPIES ranks share BATCH; nullopt if there is no such number.
[[nodiscard]] std::optional<int64_t> elastic_micro_rows(const ElasticityConfig& config,
                                                        const ElasticBatch& batch, int64_t copies);

// Returns the largest micro batch that CONFIG allows. Version 0.1: train_rows_max. Version 0.2:
// train_rows_max divided by the number of ranks of a node that get different rows.
[[nodiscard]] int64_t elastic_rows_limit(const ElasticityConfig& config);

}  // namespace dslaunch::config
