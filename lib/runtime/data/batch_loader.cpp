#include "runtime/data/batch_loader.h"

#include "base/check.h"
#include "base/log.h"

namespace dslaunch::runtime {
namespace {

void warn_when_repeated_in_a_step(const DataSource& train, const BatchLoader::Options& options) {
    const config::BatchConfig& batch = options.batch;
    const int64_t step_rows =
        batch.micro_rows * batch.accumulation_steps * batch.data_parallel_size;
    // If one micro batch already repeats samples, set_up_job() has warned.
    if (options.rank != 0 || train.rows() >= step_rows || batch.micro_rows > train.rows()) return;
    log_warn(
        "data",
        "{}: the data have {} samples, but one step uses {}, so each step repeats some samples",
        train.path(), train.rows(), step_rows);
}

}  // namespace

BatchLoader::BatchLoader(DataSource train, const Options& options)
    : train_(std::move(train)),
      options_(options),
      order_({.sample_count = train_.rows(), .seed = options.seed, .shuffle = options.shuffle}),
      prefetcher_([this](int64_t index) { return make(index); },
                  options.first_step * options.batch.accumulation_steps, options.depth) {
    DSL_CHECK(options.rank >= 0 && options.rank < options.batch.data_parallel_size,
              "data-parallel rank {} does not exist among {} ranks", options.rank,
              options.batch.data_parallel_size);
    warn_when_repeated_in_a_step(train_, options_);
}

std::vector<c10::IValue> BatchLoader::take(int64_t step, int64_t micro_step) {
    const int64_t micro_steps = options_.batch.accumulation_steps;
    DSL_CHECK(step >= options_.first_step && micro_step >= 0 && micro_step < micro_steps,
              "step {} has no data for micro step {} of {}", step, micro_step, micro_steps);
    return prefetcher_.take(step * micro_steps + micro_step);
}

std::vector<int64_t> BatchLoader::samples_of(int64_t step, int64_t micro_step) const {
    const config::BatchConfig& batch = options_.batch;
    std::vector<int64_t> samples;
    for (int64_t row = 0; row < batch.micro_rows; ++row)
        samples.push_back(order_.sample_at(
            options_.first_row + storage::position_of({.step = step - options_.first_step,
                                                       .micro_step = micro_step,
                                                       .micro_steps = batch.accumulation_steps,
                                                       .rank = options_.rank,
                                                       .ranks = batch.data_parallel_size,
                                                       .row = row,
                                                       .rows = batch.micro_rows})));
    return samples;
}

std::vector<c10::IValue> BatchLoader::make(int64_t index) const {
    const int64_t micro_steps = options_.batch.accumulation_steps;
    return train_.batch(samples_of(index / micro_steps, index % micro_steps));
}

}  // namespace dslaunch::runtime
