// The host as a device: its memory is the process's memory, and a call returns after this
// processor's kernels have done the work. It adds no cost to the kernels.
#pragma once

#include "device/device.h"
#include "kernels/thread_team.h"

namespace dslaunch::device {

// The queue of the host: every call does its work before it returns.
class HostQueue final : public Queue {
  public:
    // THREADS: the number of threads that share an update, including the calling one.
    explicit HostQueue(int threads) : team_(threads) {}

    [[nodiscard]] Stream* stream() override { return nullptr; }
    void finish() override {}
    void copy(void* into, const void* from, int64_t bytes) override;
    void copy_in(void* into, const void* from, int64_t bytes) override { copy(into, from, bytes); }
    void copy_out(void* into, const void* from, int64_t bytes) override { copy(into, from, bytes); }
    void fill(float* into, float value, int64_t numel) override;
    void adam_step(const kernels::FlatRange& range, const kernels::AdamStep& step) override;
    void adam_steps(std::span<const kernels::AdamUpdate> updates) override;
    void adagrad_step(const kernels::FlatRange& range, const kernels::AdagradStep& step) override;
    void lion_step(const kernels::FlatRange& range, const kernels::LionStep& step) override;
    void sgd_step(const kernels::FlatRange& range, const kernels::SgdStep& step) override;
    void ordered_sum(std::span<const float* const> sources, float scale, float* out,
                     int64_t numel) override;
    void accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                        int64_t numel) override;
    void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) override;
    [[nodiscard]] std::vector<double> sums_of_squares(std::span<const FloatArray> arrays) override;
    void flag_nonfinite(std::span<const FloatArray> arrays, float* flags) override;

  private:
    template <typename Update>
    void by_team(const kernels::FlatRange& range, const Update& update);

    kernels::ThreadTeam team_;  // its threads share each update; only one lane makes updates
};

// The host as a device. It uses the memory of the process.
class HostDevice final : public Device {
  public:
    // THREADS: the number of threads that share an update.
    explicit HostDevice(int threads = 1) : queue_(threads) {}

    [[nodiscard]] bool is_host() const override { return true; }
    [[nodiscard]] Memory allocate(Bytes bytes, std::string_view what) override;
    [[nodiscard]] Queue& compute() override { return queue_; }
    [[nodiscard]] Queue& communication() override { return queue_; }
    [[nodiscard]] Queue& copies() override { return queue_; }

  private:
    HostQueue queue_;
};

}  // namespace dslaunch::device
