#include "job/predict/job_forecast.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <set>
#include <stop_token>
#include <thread>

#include "base/error.h"
#include "base/machine/memory_limits.h"
#include "device/host_device.h"
#include "graph/measure/segment_times.h"
#include "job/files/stored_rates.h"
#include "job/process/process_resources.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_tensor.h"
#include "job/setup/trial_batch.h"
#include "launch/machine/machine_topology.h"
#include "plan/choose/stage_choice.h"
#include "runtime/memory/lending_allocator.h"
#include "runtime/watch/process_usage.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {
namespace {

constexpr int kRounds = 5;
constexpr int64_t kUpdateNumelMax = 4 << 20;  // 16 MiB per array: no cache holds all arrays

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

// Returns the number of elements whose states the rank keeps, clamped to the range that is
// measured.
int64_t update_numel(const JobSetup& setup) {
    int64_t numel = 0;
    for (const plan::StateChunk& chunk : setup.plan.chunks.all) numel += chunk.range.numel;
    return std::clamp<int64_t>(numel, 1 << 16, kUpdateNumelMax);
}

// Returns an optimizer that updates single elements and uses about as much memory for each element
// as CONFIG's optimizer.
config::OptimizerConfig element_wise(config::OptimizerConfig config) {
    if (!config.needs_whole_tensors()) return config;
    const int64_t states = zero::ShardOptimizer::states_per_parameter(config);
    config.kind = states == 2 ? config::OptimizerKind::kAdamW : config::OptimizerKind::kSgd;
    config.momentum = states == 1 ? 0.9 : 0;
    return config;
}

// An optimizer's step for a measurement. The arrays are as large as the part that this rank
// updates.
class UpdateWork {
  public:
    UpdateWork(const JobSetup& setup, int threads)
        : numel_(update_numel(setup)),
          queue_(threads),
          optimizer_(element_wise(setup.config().optimizer), queue_) {
        const auto count = static_cast<size_t>(numel_);
        const plan::StepPlanOptions& plan = setup.plan_options;
        const size_t sources =
            plan.fused_update ? static_cast<size_t>(plan.local_world_size) : size_t{1};
        gradients_.assign(sources, std::vector<float>(count, 1e-3F));
        for (const std::vector<float>& gradient : gradients_) pointers_.push_back(gradient.data());
        parameters_.assign(count, 1.0F);
        states_.assign(static_cast<size_t>(plan.optimizer_states), std::vector<float>(count, 0.1F));
        range_.numel = numel_;
        range_.gradients = pointers_;
        range_.parameters = parameters_;
        if (plan.master) {
            halves_.resize(count);
            range_.half_parameters = halves_;
            range_.half_dtype = setup.config().precision.compute;
        }
        if (!states_.empty()) range_.first = states_[0];
        if (states_.size() > 1) range_.second = states_[1];
        if (states_.size() > 2) range_.third = states_[2];
    }
    UpdateWork(const UpdateWork&) = delete;
    UpdateWork& operator=(const UpdateWork&) = delete;

    void run() { optimizer_.update(range_, 1e-6, ++step_); }
    [[nodiscard]] double numel() const { return static_cast<double>(numel_); }

  private:
    int64_t numel_;
    device::HostQueue queue_;
    zero::ShardOptimizer optimizer_;
    std::vector<std::vector<float>> gradients_, states_;
    std::vector<const float*> pointers_;
    std::vector<float> parameters_;
    std::vector<uint16_t> halves_;
    kernels::FlatRange range_;
    int64_t step_ = 0;
};

double measure_updates(const JobSetup& setup, int threads) {
    UpdateWork work(setup, threads);
    return work.numel() / shortest_s([&] { work.run(); });
}

// Returns how many bytes per second one thread reads and writes while it sums.
double measure_sums(const JobSetup& setup) {
    const int64_t numel = update_numel(setup);
    std::vector<float> a(static_cast<size_t>(numel), 1.0F);
    std::vector<float> b(a);
    const float* const sources[] = {a.data(), b.data()};
    const double took_s = shortest_s([&] { kernels::ordered_sum(sources, 0.5F, a.data(), numel); });
    return 3.0 * sizeof(float) * static_cast<double>(numel) / took_s;
}

// A lender of memory for the gradients of parameters. It lends its places in turn, so that some
// time passes before a place is written again, as in the arena of a real step. Its memory has the
// size of all gradients, or a smaller size that still exceeds every cache.
class GradientPlaces final : public runtime::MemoryLender {
  public:
    explicit GradientPlaces(const plan::ModelInfo& model) {
        size_t total = 0;
        for (const plan::ParameterInfo& parameter : model.parameters) {
            if (!parameter.trainable) continue;
            const auto bytes = static_cast<size_t>(parameter.numel * parameter.element_bytes);
            if (bytes < kLeastBytes) continue;
            bytes_.insert(bytes);
            total += round_up_line(bytes);
        }
        size_t room = std::min(total, kRoom);
        if (!bytes_.empty()) room = std::max(room, round_up_line(*bytes_.rbegin()));
        memory_ = at::zeros({static_cast<int64_t>(room + kLine)}, at::kByte);
    }

    [[nodiscard]] void* lend(size_t bytes) override {
        if (bytes_.count(bytes) == 0) return nullptr;
        const size_t taken = round_up_line(bytes);
        const auto room = static_cast<size_t>(memory_.numel()) - kLine;
        if (next_ + taken > room) next_ = 0;
        auto* const first = static_cast<std::byte*>(memory_.mutable_data_ptr());
        const size_t off = (kLine - reinterpret_cast<uintptr_t>(first) % kLine) % kLine;
        std::byte* const place = first + off + next_;
        std::erase_if(out_, [](const Place& out) { return !runtime::is_lent(out.begin); });
        for (const Place& out : out_)
            if (out.begin < place + taken && place < out.begin + out.bytes) return nullptr;
        out_.push_back({place, taken});
        next_ += taken;
        return place;
    }
    void note(const void*) override {}

  private:
    struct Place {
        std::byte* begin = nullptr;
        size_t bytes = 0;
    };
    static constexpr size_t kLine = 64;
    static constexpr size_t kLeastBytes = 64 << 10;  // smaller gradients are in a cache anyway
    static constexpr size_t kRoom = size_t{256} << 20;
    static size_t round_up_line(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

    std::set<size_t> bytes_;  // sizes of the gradients that are given a place
    std::vector<Place> out_;
    at::Tensor memory_;
    size_t next_ = 0;
};

std::vector<plan::SegmentTimes> measure_segments(const JobSetup& setup, int rounds = kRounds) {
    graph::SegmentTimesOptions options;
    options.rounds = rounds;
    for (const plan::SegmentInfo& segment : setup.model_info.segments)
        options.kept.push_back(segment.activation_bytes);
    GradientPlaces places(setup.model_info);
    options.around_backward = [&](const std::function<void()>& backward) {
        const runtime::LendingScope lending(&places);
        backward();
    };
    return graph::measure_times(*setup.segmented, trial_batch(setup), options);
}

double backward_s(const std::vector<plan::SegmentTimes>& times) {
    double sum = 0;
    for (const plan::SegmentTimes& of : times) sum += plan::backward_s(of);
    return sum;
}

// The speeds of segments and of updates while both run at the same time, as in the backward of a
// step.
struct Beside {
    double backward_s = 0;
    double update_numel_per_s = 0;
};

Beside measure_both(const JobSetup& setup, int threads) {
    constexpr int kRoundsOfBoth = 2;
    Beside beside;
    std::jthread updates([&](const std::stop_token& over) {
        UpdateWork work(setup, threads);
        double numel = 0;
        const auto begin = std::chrono::steady_clock::now();
        while (!over.stop_requested()) {
            work.run();
            numel += work.numel();
        }
        beside.update_numel_per_s =
            numel / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
    beside.backward_s = backward_s(measure_segments(setup, kRoundsOfBoth));
    updates.request_stop();
    updates.join();
    return beside;
}

// Returns the speed of work that runs beside other work, as a fraction of its speed alone. BESIDE
// and ALONE are rates; if they are times, swap them.
double share_of_speed(double beside, double alone) {
    return alone > 0 ? std::clamp(beside / alone, 0.1, 1.0) : 0.5;
}

}  // namespace

JobRates measure_job_rates(const JobSetup& setup, const JobRatesOptions& options) {
    JobRates rates;
    const auto begin = [&](MeasuredWork work) {
        if (options.before) options.before(work);
    };
    begin(MeasuredWork::kUpdates);
    // The first two measurements return the memory of their arrays to the system, so that the later
    // measurements do not add to it.
    rates.machine.update_numel_per_s = measure_updates(setup, options.threads);
    rates.machine.sum_bytes_per_s = measure_sums(setup);
    keep_freed_memory();
    const WithoutGroup alone(setup.sharing.place);
    begin(MeasuredWork::kSegments);
    rates.segments = measure_segments(setup, options.rounds);
    begin(MeasuredWork::kBoth);
    const Beside beside = measure_both(setup, options.threads);
    rates.machine.computing_beside = share_of_speed(backward_s(rates.segments), beside.backward_s);
    rates.machine.updating_beside =
        share_of_speed(beside.update_numel_per_s, rates.machine.update_numel_per_s);
    rates.machine.host_bytes_per_s = rates.machine.sum_bytes_per_s / 3;
    rates.machine.link_bytes_per_s = options.link_bytes_per_s;
    if (!setup.config().offload.nvme_paths.empty())
        rates.machine.disk = stored_rates(setup.config().offload);
    return_freed_memory();
    ::malloc_trim(0);
    return rates;
}

std::optional<JobRates> rates_on_gpu(const JobSetup& setup, const plan::DeviceRates& device,
                                     const GivenRates& given) {
    const config::RunConfig& config = setup.config();
    const double flops_per_s = given.flops_per_s > 0
                                   ? given.flops_per_s
                                   : device.flops_per_s(config.precision.compute, config.tf32);
    if (flops_per_s <= 0) return std::nullopt;
    JobRates rates;
    rates.segments =
        plan::times_from_flops(setup.model_info, flops_per_s, device.memory_bytes_per_s);
    // An update reads the gradient, reads and writes the parameter and each state, and writes the
    // copy of the parameter that segments read, if it is separate.
    const plan::StepPlanOptions& plan = setup.plan_options;
    const auto touched = static_cast<double>((3 + 2 * plan.optimizer_states) * plan::kFp32Bytes +
                                             (plan.master ? plan.parameter_bytes : 0));
    rates.machine.update_numel_per_s = device.memory_bytes_per_s / touched;
    rates.machine.sum_bytes_per_s = device.memory_bytes_per_s;
    rates.machine.link_bytes_per_s = given.link_bytes_per_s;
    return rates;
}

namespace {

// Returns the number of processes to start beside this process. Each process is taken to need twice
// the memory that this process uses now, since it has the model and will also hold the gradients.
int neighbour_count(int ranks) {
    int count = std::max(0, std::min(ranks, launch::processors_granted()) - 1);
    const int64_t each = 2 * runtime::process_usage().rss_bytes;
    // A limit on a single process does not limit the number of processes.
    std::vector<MemoryLimit> limits = read_memory_state().limits;
    std::erase_if(limits, [](const MemoryLimit& limit) { return limit.of != LimitOf::kHost; });
    if (const auto limit = tightest_share(limits, 1))
        count = static_cast<int>(std::min<int64_t>(count, limit->left.value / each - 1));
    return std::max(0, count);
}

}  // namespace

HostRates measure_host_rates(const JobSetup& setup, int ranks, double link_bytes_per_s) {
    if (setup.shapes_only)
        fail(ExitCode::kUsage,
             "cannot time segments here, because the model's weights are missing: give a folder "
             "that contains them, or estimate times from FLOPs (--stages or --search with "
             "--flops-rate), or plan for a GPU (--device cuda --device-memory H100)");
    set_rank_threads(ranks);
    const int beside = neighbour_count(ranks);
    const MeasuringNeighbours neighbours(beside, fmt::format("{}={}", kMeasureBesideOption, ranks));
    JobRatesOptions options{at::get_num_threads(), link_bytes_per_s};
    options.before = [&](MeasuredWork work) { neighbours.begin(work); };
    return {measure_job_rates(setup, options), beside};
}

void measure_beside_rank(const JobSetup& setup, int ranks) {
    set_rank_threads(ranks);
    keep_freed_memory();
    const WithoutGroup alone(setup.sharing.place);
    measure_beside([&](MeasuredWork work) {
        switch (work) {
            case MeasuredWork::kUpdates:
                static_cast<void>(measure_updates(setup, at::get_num_threads()));
                static_cast<void>(measure_sums(setup));
                return;
            case MeasuredWork::kSegments:
                static_cast<void>(measure_segments(setup));
                return;
            case MeasuredWork::kBoth:
                static_cast<void>(measure_both(setup, at::get_num_threads()));
                return;
        }
    });
}

std::vector<plan::InstructionSpan> forecast_step(const plan::StepPlan& plan, const JobSetup& setup,
                                                 const runtime::Topology& place,
                                                 const JobRates& rates) {
    std::vector<JobSetup> stages;
    for (const int rank : setup.place.pipeline)
        stages.push_back(seen_from(setup, runtime::Topology::of_rank(place.node_sizes, rank)));
    const auto own = static_cast<size_t>(setup.place.stage);
    std::vector<std::vector<plan::SegmentTimes>> times(stages.size());
    std::vector<plan::RankStep> steps;
    for (size_t s = 0; s < stages.size(); ++s) {
        for (const plan::SegmentRange& range : stages[s].own_segments())
            times[s].insert(times[s].end(), rates.segments.begin() + range.begin,
                            rates.segments.begin() + range.end);
        steps.push_back({s == own ? &plan : &stages[s].plan, &stages[s].info, times[s]});
    }
    return plan::forecast_steps(steps, rates.machine)[own];
}

}  // namespace dslaunch::job
