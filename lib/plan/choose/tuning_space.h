// The settings of a job that `dslaunch tune` may change, and the list of the settings that it
// considers. All settings have the same number of rows in a step, so all of them train the same
// model. Data path: config, model -> [here] -> forecasts -> trial_order.h. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace dslaunch::plan {

// The settings that `dslaunch tune` chooses.
struct TunedSettings {
    int64_t micro_rows = 1;          // rows of a micro batch
    int64_t accumulation_steps = 1;  // micro batches of a rank in a step
    int64_t stage = 0;               // ZeRO stage
    int64_t recompute_groups = 0;    // 0: activations are kept
    bool optimizer_on_disk = false;
    bool parameters_on_disk = false;
    int64_t bucket_numel = 500'000'000;  // reduce_bucket_size

    bool operator==(const TunedSettings&) const = default;
};

// Returns the number of settings in which A and B differ. accumulation_steps does not count, since
// it follows from the micro batch.
[[nodiscard]] int differences(const TunedSettings& a, const TunedSettings& b);

// Returns SETTINGS in words: "micro batch 4 x 2, ZeRO 1, recompute 4". Names the buckets only if
// their size is not DeepSpeed's default.
[[nodiscard]] std::string settings_text(const TunedSettings& settings);

// The limits of the settings to try.
struct TuningLimits {
    int64_t rows = 1;   // rows of a rank in a step: micro batch times accumulation
    int64_t ranks = 1;  // ranks of the job
    int64_t micro_rows_min = 1;
    int64_t micro_rows_max = std::numeric_limits<int64_t>::max();
    int64_t micro_sizes = 5;                     // the largest number of micro batch sizes
    std::vector<int64_t> stages = {0, 1, 2, 3};  // ZeRO stages that may be chosen
    int64_t segments = 1;       // segments of the model: the largest number of recompute groups
    int64_t trained_numel = 1;  // elements of the trained parameters
    bool tunes_recompute = true;
    bool tunes_buckets = true;
    bool tunes_disk = false;  // true: a folder on a disk is known
};

// Returns the settings to consider, GIVEN first, without repetitions:
// - micro batches that divide the rows, at most micro_sizes of them, spread evenly over all
//   divisors from the smallest to the largest; GIVEN's micro batch replaces the nearest of them,
//   even the smallest or largest;
// - with one rank, only GIVEN's ZeRO stage and 0, because a higher stage divides nothing; but all
//   stages if a disk is known;
// - GIVEN's recompute groups, no recomputation, and the root of the number of segments as groups;
// - states on disk from stage 1 on, parameters too at stage 3;
// - GIVEN's bucket, and buckets of all, a fourth and a sixteenth of the elements, at least 64 Ki.
//
// REQUIRES: GIVEN's micro batch divides the rows.
[[nodiscard]] std::vector<TunedSettings> tuning_space(const TunedSettings& given,
                                                      const TuningLimits& limits);

// Returns the overrides of the config ("a.b=c") that turn GIVEN into CHOSEN. TRAIN_ROWS: the rows
// of a step over all ranks. NVME_PATH: the folder for values on disk, if CHOSEN has any.
[[nodiscard]] std::vector<std::string> tuning_overrides(const TunedSettings& chosen,
                                                        const TunedSettings& given,
                                                        int64_t train_rows,
                                                        const std::string& nvme_path);

}  // namespace dslaunch::plan
