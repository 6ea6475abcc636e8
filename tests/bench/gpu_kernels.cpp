// bench_gpu_kernels: measures the work of a GPU's queue, relative to the speed at which the GPU
// copies, and compares its bits with the processor's. Opens the libdsl_cuda.so beside it, so that
// it can be built without a GPU. Prints a Markdown table; ends with 1 if bits differ.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/error.h"
#include "device/host_device.h"
#include "kernels/flat_optimizer.h"
#include "runtime/comm/device_backend.h"

using namespace dslaunch;
using device::Device;
using device::Memory;
using device::Queue;
using kernels::FlatRange;

namespace {

constexpr int64_t kNumel = int64_t{1} << 28;
constexpr int64_t kCheckedNumel = 1'000'003;
constexpr int kTurns = 10;

struct Arrays {
    Memory parameters, gradients, first, second, half;

    Arrays(Device& device, int64_t numel) {
        const auto floats = [&] { return device.allocate(Bytes{numel * 4}, "a bench"); };
        parameters = floats();
        gradients = floats();
        first = floats();
        second = floats();
        half = device.allocate(Bytes{numel * 2}, "a bench");
    }
    // REQUIRES: GRADIENT, the pointer itself, outlives the range.
    [[nodiscard]] FlatRange range(const float* const& gradient, int64_t numel,
                                  bool with_half) const {
        FlatRange all;
        all.numel = numel;
        all.gradients = {&gradient, 1};
        all.gradient_scale = 0.5F;
        all.parameters = parameters.floats();
        all.first = first.floats();
        all.second = second.floats();
        if (with_half)
            all.half_parameters = {reinterpret_cast<uint16_t*>(half.bytes().data()),
                                   static_cast<size_t>(numel)};
        return all;
    }
};

struct Work {
    const char* name;
    double bytes;  // moved for each element
    std::function<void(Queue&, const Arrays&, int64_t numel)> run;
};

std::vector<Work> all_work() {
    const auto update = [](bool half, auto&& step) {
        return [half, step](Queue& queue, const Arrays& a, int64_t numel) {
            const float* const gradient = a.gradients.floats().data();
            step(queue, a.range(gradient, numel, half));
        };
    };
    const auto adam = [](Queue& q, const FlatRange& r) {
        q.adam_step(r, {.lr = 1e-3, .weight_decay = 0.01, .step = 3});
    };
    return {
        {"copy", 8,
         [](Queue& q, const Arrays& a, int64_t n) {
             q.copy(a.second.bytes().data(), a.first.bytes().data(), n * 4);
         }},
        {"AdamW, fp32", 28, update(false, adam)},
        {"AdamW with a bf16 copy", 30, update(true, adam)},
        {"SGD with momentum", 20,
         update(false, [](Queue& q,
                          const FlatRange& r) { q.sgd_step(r, {.lr = 1e-3, .momentum = 0.9}); })},
        {"Adagrad", 20,
         update(false, [](Queue& q, const FlatRange& r) { q.adagrad_step(r, {.lr = 1e-3}); })},
        {"Lion", 20,
         update(false, [](Queue& q, const FlatRange& r) { q.lion_step(r, {.lr = 1e-3}); })},
        {"sum of two", 12,
         [](Queue& q, const Arrays& a, int64_t n) {
             const float* const sources[] = {a.gradients.floats().data(), a.first.floats().data()};
             q.ordered_sum(sources, 0.5F, a.second.floats().data(), n);
         }},
        {"accumulate", 12,
         [](Queue& q, const Arrays& a, int64_t n) {
             const float* const source = a.gradients.floats().data();
             q.accumulate_sum({&source, 1}, 0.5F, a.second.floats().data(), n);
         }},
        {"cast to bf16", 6,
         [](Queue& q, const Arrays& a, int64_t n) {
             q.to_half(a.gradients.floats().data(),
                       reinterpret_cast<uint16_t*>(a.half.bytes().data()), n, DType::kBF16);
         }},
        {"fill", 4,
         [](Queue& q, const Arrays& a, int64_t n) { q.fill(a.second.floats().data(), 0.25F, n); }},
        {"squares for the norm", 4,
         [](Queue& q, const Arrays& a, int64_t n) {
             std::vector<device::FloatArray> blocks;
             for (int64_t at = 0; at < n; at += kernels::kNormBlockNumel)
                 blocks.push_back({a.gradients.floats().data() + at,
                                   std::min(kernels::kNormBlockNumel, n - at)});
             static_cast<void>(q.sums_of_squares(blocks));
         }},
        {"look for what is not finite", 4,
         [](Queue& q, const Arrays& a, int64_t n) {
             const device::FloatArray values{a.gradients.floats().data(), n};
             q.flag_nonfinite({&values, 1}, a.second.floats().data());
         }},
    };
}

void write(Device& device, const Arrays& arrays, int64_t numel) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(numel));
    for (const Memory* memory :
         {&arrays.parameters, &arrays.gradients, &arrays.first, &arrays.second}) {
        for (float& value : values) value = normal(random);
        if (memory == &arrays.second)
            for (float& value : values) value *= value;
        device.compute().copy_in(memory->bytes().data(), values.data(), numel * 4);
    }
    device.compute().finish();
}

std::vector<std::byte> read(Device& device, const Arrays& arrays) {
    std::vector<std::byte> all;
    for (const Memory* memory : {&arrays.parameters, &arrays.first, &arrays.second, &arrays.half}) {
        const size_t begin = all.size();
        all.resize(begin + memory->bytes().size());
        device.compute().copy_out(all.data() + begin, memory->bytes().data(),
                                  std::ssize(memory->bytes()));
    }
    return all;
}

// Returns true if WORK gives the same bits on both devices.
bool same_bits(const Work& work, Device& gpu, Device& host) {
    const Arrays there(gpu, kCheckedNumel), here(host, kCheckedNumel);
    write(gpu, there, kCheckedNumel);
    write(host, here, kCheckedNumel);
    work.run(gpu.compute(), there, kCheckedNumel);
    work.run(host.compute(), here, kCheckedNumel);
    return read(gpu, there) == read(host, here);
}

double seconds_of(const Work& work, Queue& queue, const Arrays& arrays) {
    work.run(queue, arrays, kNumel);
    queue.finish();
    const std::unique_ptr<device::Event> begin = queue.stream()->make_event();
    const std::unique_ptr<device::Event> end = queue.stream()->make_event();
    std::vector<double> turns;
    for (int turn = 0; turn < kTurns; ++turn) {
        queue.stream()->record(*begin);
        work.run(queue, arrays, kNumel);
        queue.stream()->record(*end);
        queue.finish();
        turns.push_back(to_milliseconds(end->since(*begin)) / 1e3);
    }
    std::ranges::sort(turns);
    return turns[turns.size() / 2];
}

}  // namespace

int main() {
    try {
        const runtime::DeviceBackendPtr gpu =
            runtime::open_device_backend(runtime::own_device_plugin(), 0);
        device::HostDevice host;
        fmt::print("{}; {} elements, medians of {} turns\n\n", gpu->describe(), kNumel, kTurns);
        fmt::print("| work | bytes an element | GB/s | of a copy | bits of the CPU |\n");
        fmt::print("|---|---|---|---|---|\n");
        bool all_same = true;
        const Arrays arrays(*gpu, kNumel);
        double copied = 0;
        for (const Work& work : all_work()) {
            const bool same = same_bits(work, *gpu, host);
            all_same = all_same && same;
            const double rate =
                work.bytes * kNumel / seconds_of(work, gpu->compute(), arrays) / 1e9;
            if (copied == 0) copied = rate;
            fmt::print("| {} | {:.0f} | {:.0f} | {:.2f} | {} |\n", work.name, work.bytes, rate,
                       rate / copied, same ? "equal" : "DIFFER");
            std::fflush(stdout);
        }
        return all_same ? 0 : 1;
    } catch (const Error& error) {
        fmt::print(stderr, "bench_gpu_kernels: {}\n", error.what());
        return static_cast<int>(error.code());
    }
}
