// A queue of a test device. Its work runs on a thread: a loop over the grid calls a GPU's kernels
// (host_grid.h) on memory that the host cannot touch.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "device/queue.h"
#include "support/device/test_device_memory.h"
#include "support/device/thread_stream.h"
#include "support/host_grid.h"

namespace dslaunch::test {

class TestQueue final : public device::Queue {
  public:
    // CHECK is called again and again while the host waits.
    TestQueue(ThreadStream& stream, std::function<void()> check)
        : stream_(stream), check_(std::move(check)) {}

    [[nodiscard]] device::Stream* stream() override { return &stream_; }
    void finish() override {
        ThreadEvent event;
        stream_.record(event);
        static_cast<void>(device::await_event(event, {check_, Duration::max()}));
    }

    void copy(void* into, const void* from, int64_t bytes) override {
        stream_.put([=, to = kernel(into), source = kernel(from)] {
            std::memcpy(to, source, static_cast<size_t>(bytes));
        });
    }
    void copy_in(void* into, const void* from, int64_t bytes) override {
        const auto* const begin = static_cast<const std::byte*>(from);
        stream_.put([to = kernel(into), values = std::vector<std::byte>(begin, begin + bytes)] {
            if (!values.empty()) std::memcpy(to, values.data(), values.size());
        });
    }
    void copy_out(void* into, const void* from, int64_t bytes) override {
        finish();
        if (bytes > 0) std::memcpy(into, kernel(from), static_cast<size_t>(bytes));
    }
    void fill(float* into, float value, int64_t numel) override {
        stream_.put([=, to = kernel(into)] {
            for_grid(numel, [&](const kernels::GridPlace& place) {
                kernels::grid_fill(to, value, numel, place);
            });
        });
    }

    void adam_step(const kernels::FlatRange& range, const kernels::AdamStep& step) override {
        const kernels::UpdateArrays arrays = kernels::arrays_of(range, step);
        const kernels::AdamConstants constants = kernels::constants_of(step);
        switch (constants.form) {
            case kernels::AdamForm::kUsual:
                return update(range, arrays, kernels::Adam{constants});
            case kernels::AdamForm::kFrozen:
                return update(range, arrays, kernels::FrozenAdam{constants});
            case kernels::AdamForm::kLargest:
                return update(range, arrays, kernels::AmsgradAdam{constants});
            case kernels::AdamForm::kEpsInside:
                return update(range, arrays, kernels::EpsInsideAdam{constants});
        }
    }
    void adagrad_step(const kernels::FlatRange& range, const kernels::AdagradStep& step) override {
        update(range, kernels::arrays_of(range, step),
               kernels::Adagrad{kernels::constants_of(step)});
    }
    void lion_step(const kernels::FlatRange& range, const kernels::LionStep& step) override {
        update(range, kernels::arrays_of(range, step), kernels::Lion{kernels::constants_of(step)});
    }
    void sgd_step(const kernels::FlatRange& range, const kernels::SgdStep& step) override {
        update(range, kernels::arrays_of(range, step), kernels::Sgd{kernels::constants_of(step)});
    }

    void ordered_sum(std::span<const float* const> sources, float scale, float* out,
                     int64_t numel) override {
        sum(sources, scale, /*adds=*/false, out, numel);
    }
    void accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                        int64_t numel) override {
        sum(sources, scale, /*adds=*/true, into, numel);
    }
    void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) override {
        stream_.put([=, from = kernel(values), to = kernel(out)] {
            for_grid(numel, [&](const kernels::GridPlace& place) {
                kernels::grid_to_half(from, to, dtype == DType::kBF16, numel, place);
            });
        });
    }

    [[nodiscard]] std::vector<double> sums_of_squares(
        std::span<const device::FloatArray> arrays) override {
        std::vector<double> sums(arrays.size());
        for (size_t i = 0; i < arrays.size(); ++i)
            stream_.put([&sums, i, numel = arrays[i].numel, from = kernel(arrays[i].data)] {
                sums[i] = squares_on_host(from, numel);
            });
        finish();
        return sums;
    }
    void flag_nonfinite(std::span<const device::FloatArray> arrays, float* flags) override {
        for (size_t i = 0; i < arrays.size(); ++i) {
            if (arrays[i].numel == 0) continue;
            stream_.put([values = kernels::GridValues{kernel(arrays[i].data), arrays[i].numel},
                         flag = kernel(flags + i)] {
                kernels::GridFlags launch{};
                launch.arrays[0] = values;
                launch.flags = flag;
                for_grid(values.numel, [&](const kernels::GridPlace& place) {
                    kernels::grid_flag_nonfinite(launch, 0, place);
                });
            });
        }
    }

  private:
    template <typename Value>
    static Value* kernel(Value* data) {
        return DeviceMemory::instance().kernel_of(data);
    }
    static kernels::UpdateArrays on_kernel(kernels::UpdateArrays arrays) {
        arrays.parameters = kernel(arrays.parameters);
        arrays.first = kernel(arrays.first);
        arrays.second = kernel(arrays.second);
        arrays.third = kernel(arrays.third);
        arrays.half = kernel(arrays.half);
        return arrays;
    }
    static std::vector<const float*> on_kernel(std::span<const float* const> sources) {
        std::vector<const float*> all;
        for (const float* source : sources) all.push_back(kernel(source));
        return all;
    }

    template <typename Rule>
    void update(const kernels::FlatRange& range, const kernels::UpdateArrays& arrays,
                const Rule& rule) {
        stream_.put([part = kernels::ElementRange{range.begin, range.numel}, rule,
                     arrays = on_kernel(arrays), sources = on_kernel(range.gradients)]() mutable {
            arrays.gradients.fp32 = sources.data();
            grid_update_on_host(arrays, part, rule);
        });
    }
    void sum(std::span<const float* const> sources, float scale, bool adds, float* out,
             int64_t numel) {
        stream_.put([=, to = kernel(out), from = on_kernel(sources)] {
            const kernels::GridSources list = grid_sources(from);
            for_grid(numel, [&](const kernels::GridPlace& place) {
                kernels::grid_sum(list, scale, adds, to, numel, place);
            });
        });
    }

    ThreadStream& stream_;
    std::function<void()> check_;
};

}  // namespace dslaunch::test
