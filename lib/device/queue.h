// Work on flat arrays in a device's memory, done in the order in which it is submitted: immediately
// on the host, later on a stream of a GPU. The results are equal, bit for bit, to the results of
// kernels/flat_optimizer.h. Data path: ZeRO state -> [here] -> kernels of the host, or of
// lib/kernels/cuda. Threads: a queue belongs to its lane; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "device/stream.h"
#include "kernels/flat_range.h"

namespace dslaunch::device {

// An array of fp32 values; DATA is null if it is empty.
struct FloatArray {
    const float* data = nullptr;
    int64_t numel = 0;

    bool operator==(const FloatArray&) const = default;
};

// A queue of work for a device. All arrays are in the device's memory, except where a comment names
// the host. Functions throw Error{kSetup} if the device fails. A function that waits for the device
// also throws what await_event() throws.
class Queue {
  public:
    virtual ~Queue() = default;

    // Returns the stream that does the work; null if every call returns only after its work is
    // done.
    [[nodiscard]] virtual Stream* stream() = 0;
    // Waits until all submitted work is done.
    virtual void finish() = 0;

    // REQUIRES, for copy, copy_in and copy_out: the two ranges do not overlap.
    virtual void copy(void* into, const void* from, int64_t bytes) = 0;
    // FROM is in the host's memory. It may change after the call returns.
    virtual void copy_in(void* into, const void* from, int64_t bytes) = 0;
    // INTO is in the host's memory. It has been written when the call returns.
    virtual void copy_out(void* into, const void* from, int64_t bytes) = 0;
    virtual void fill(float* into, float value, int64_t numel) = 0;

    // Updates RANGE of a parameter by one step of Adam (kernels/flat_optimizer.h).
    virtual void adam_step(const kernels::FlatRange& range, const kernels::AdamStep& step) = 0;
    // Updates ranges that do not overlap, in any order.
    virtual void adam_steps(std::span<const kernels::AdamUpdate> updates) {
        for (const kernels::AdamUpdate& update : updates) adam_step(update.range, update.step);
    }
    // Update RANGE by one step of another optimizer.
    virtual void adagrad_step(const kernels::FlatRange& range,
                              const kernels::AdagradStep& step) = 0;
    virtual void lion_step(const kernels::FlatRange& range, const kernels::LionStep& step) = 0;
    virtual void sgd_step(const kernels::FlatRange& range, const kernels::SgdStep& step) = 0;
    // Add up SOURCES, arrays of NUMEL values, in the given order, and multiply the sum by SCALE.
    // ordered_sum() writes the result to OUT, and accumulate_sum() adds it to INTO.
    virtual void ordered_sum(std::span<const float* const> sources, float scale, float* out,
                             int64_t numel) = 0;
    virtual void accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                                int64_t numel) = 0;
    // Rounds NUMEL values to DTYPE, bf16 or fp16.
    virtual void to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) = 0;

    // Returns the sum of squares of each of ARRAYS, in fp64. Waits until the device has computed
    // them. REQUIRES: each has at most kernels::kNormBlockNumel elements.
    [[nodiscard]] virtual std::vector<double> sums_of_squares(
        std::span<const FloatArray> arrays) = 0;
    // Sets FLAGS[i] to 1 if any element of ARRAYS[i] is not finite; otherwise does not change it.
    virtual void flag_nonfinite(std::span<const FloatArray> arrays, float* flags) = 0;
};

}  // namespace dslaunch::device
