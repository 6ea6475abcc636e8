// Work over flat arrays in a device's memory, done in the order in which it is given: at once on
// the host, later on a stream of a GPU. The arithmetic has the bits of kernels/flat_optimizer.h.
// Data path: ZeRO state -> [here] -> the host's kernels, or lib/kernels/cuda's. Threads: a queue is
// its lane's; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "device/stream.h"
#include "kernels/flat_range.h"

namespace dslaunch::device {

// An array of fp32 values. Null if it is empty.
struct Values {
    const float* data = nullptr;
    int64_t numel = 0;

    bool operator==(const Values&) const = default;
};

// All arrays lie in the device's memory unless a function says otherwise. Failures throw
// Error{kSetup} for the device, and the errors that a wait for it meets.
class Queue {
  public:
    virtual ~Queue() = default;

    // Returns the stream that does the work; null if a call returns when its work is done.
    [[nodiscard]] virtual Stream* stream() = 0;
    // Waits until all work that was given is done.
    virtual void finish() = 0;

    // REQUIRES, for the three: no overlap.
    virtual void copy(void* into, const void* from, int64_t bytes) = 0;
    // FROM is the host's. It may change when the call returns.
    virtual void copy_in(void* into, const void* from, int64_t bytes) = 0;
    // INTO is the host's. It is written when the call returns.
    virtual void copy_out(void* into, const void* from, int64_t bytes) = 0;
    virtual void fill(float* into, float value, int64_t numel) = 0;

    virtual void adam_step(const kernels::FlatRange& range, const kernels::AdamStep& step) = 0;
    // Updates ranges that do not overlap, in any order.
    virtual void adam_steps(std::span<const kernels::AdamUpdate> updates) {
        for (const kernels::AdamUpdate& update : updates) adam_step(update.range, update.step);
    }
    virtual void adagrad_step(const kernels::FlatRange& range,
                              const kernels::AdagradStep& step) = 0;
    virtual void lion_step(const kernels::FlatRange& range, const kernels::LionStep& step) = 0;
    virtual void sgd_step(const kernels::FlatRange& range, const kernels::SgdStep& step) = 0;
    virtual void ordered_sum(std::span<const float* const> sources, float scale, float* out,
                             int64_t numel) = 0;
    virtual void accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                                int64_t numel) = 0;
    virtual void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) = 0;

    // Returns the sum of squares of each of ARRAYS, in fp64. Waits until it is known. REQUIRES:
    // each has at most kernels::kNormBlockNumel elements.
    [[nodiscard]] virtual std::vector<double> sums_of_squares(std::span<const Values> arrays) = 0;
    // Sets FLAGS[i] to 1 if any element of ARRAYS[i] is not finite, else leaves it.
    virtual void flag_nonfinite(std::span<const Values> arrays, float* flags) = 0;
};

}  // namespace dslaunch::device
