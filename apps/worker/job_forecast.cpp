#include "worker/job_forecast.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>

#include "graph/segment_times.h"
#include "worker/process_memory.h"
#include "worker/stored_rates.h"
#include "zero/shard_optimizer.h"

namespace dslaunch {
namespace {

constexpr int kRounds = 5;
constexpr int64_t kUpdateNumelMax = 4 << 20;  // 16 MiB an array: no cache holds all of them

template <typename Action>
double shortest_s(Action&& action) {
    double shortest = std::numeric_limits<double>::infinity();
    for (int round = 0; round <= kRounds; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        action();
        const double took =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (round > 0) shortest = std::min(shortest, took);
    }
    return shortest;
}

// Elements whose states the rank keeps, as many as are measured.
int64_t update_numel(const JobSetup& setup) {
    int64_t numel = 0;
    for (const StateChunk& chunk : setup.plan.chunks.all) numel += chunk.range.numel;
    return std::clamp<int64_t>(numel, 1 << 16, kUpdateNumelMax);
}

double measure_updates(const JobSetup& setup, int threads) {
    const int64_t numel = update_numel(setup);
    const auto count = static_cast<size_t>(numel);
    const bool half = setup.plan_options.master;
    const size_t sources = setup.plan_options.fused_update
                               ? static_cast<size_t>(setup.plan_options.local_world_size)
                               : 1;
    std::vector<std::vector<float>> gradients(sources, std::vector<float>(count, 1e-3F));
    std::vector<const float*> pointers;
    for (const std::vector<float>& gradient : gradients) pointers.push_back(gradient.data());
    std::vector<float> parameters(count, 1.0F);
    std::vector<std::vector<float>> states(static_cast<size_t>(setup.plan_options.optimizer_states),
                                           std::vector<float>(count, 0.1F));
    std::vector<uint16_t> halves(half ? count : 0);
    FlatRange range;
    range.numel = numel;
    range.gradients = pointers;
    range.parameters = parameters;
    if (half) {
        range.half_parameters = halves;
        range.half_dtype = setup.config().precision.compute;
    }
    if (!states.empty()) range.first = states[0];
    if (states.size() > 1) range.second = states[1];
    ShardOptimizer optimizer(setup.config().optimizer, threads);
    int64_t step = 0;
    return static_cast<double>(numel) / shortest_s([&] { optimizer.update(range, 1e-6, ++step); });
}

// Bytes read and written, by one thread.
double measure_sums(const JobSetup& setup) {
    const int64_t numel = update_numel(setup);
    std::vector<float> a(static_cast<size_t>(numel), 1.0F);
    std::vector<float> b(a);
    const float* const sources[] = {a.data(), b.data()};
    const double took_s = shortest_s([&] { ordered_sum(sources, 0.5F, a.data(), numel); });
    return 3.0 * sizeof(float) * static_cast<double>(numel) / took_s;
}

}  // namespace

std::vector<c10::IValue> trial_batch(const JobSetup& setup) {
    const int64_t rows = setup.config().batch.micro_rows;
    if (!setup.data)
        return std::vector<c10::IValue>(setup.segmented->arguments().size(),
                                        at::zeros({rows, setup.config().data.context}, at::kLong));
    std::vector<int64_t> samples(static_cast<size_t>(std::min(rows, setup.data->train.rows())));
    std::iota(samples.begin(), samples.end(), 0);
    return setup.data->train.batch(samples);
}

void set_rank_threads(int ranks) {
    if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
    const auto processors = static_cast<int>(std::thread::hardware_concurrency());
    at::set_num_threads(std::max(1, processors / ranks));
}

JobRates measure_job_rates(const JobSetup& setup, const JobRatesOptions& options) {
    JobRates rates;
    // The arrays of these go back to the system, so that the run need not hold them besides.
    rates.machine.update_numel_per_s = measure_updates(setup, options.threads);
    rates.machine.sum_bytes_per_s = measure_sums(setup);
    keep_freed_memory();
    rates.segments = measure_times(*setup.segmented, trial_batch(setup), kRounds);
    rates.machine.host_bytes_per_s = rates.machine.sum_bytes_per_s / 3;
    rates.machine.link_bytes_per_s = options.link_bytes_per_s;
    if (setup.config().offload.nvme_paths.size() > 0)
        rates.machine.disk = stored_rates(setup.config().offload);
    return_freed_memory();
    ::malloc_trim(0);
    return rates;
}

std::vector<InstructionSpan> forecast_step(const StepPlan& plan, const JobSetup& setup,
                                           const Topology& place, const JobRates& rates) {
    std::vector<JobSetup> stages;
    for (const int rank : setup.place.pipeline)
        stages.push_back(seen_from(setup, Topology::of_rank(place.node_sizes, rank)));
    const auto own = static_cast<size_t>(setup.place.stage);
    std::vector<TimedPlan> timed;
    for (size_t s = 0; s < stages.size(); ++s) {
        const SegmentRange& range = setup.stages[s];
        const std::span times = std::span(rates.segments)
                                    .subspan(static_cast<size_t>(range.begin),
                                             static_cast<size_t>(range.end - range.begin));
        timed.push_back(
            time_plan(s == own ? plan : stages[s].plan, stages[s].info, times, rates.machine));
    }
    return run_timed_plans(timed)[own];
}

}  // namespace dslaunch
