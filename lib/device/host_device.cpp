#include "device/host_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/machine/zeroed_floats.h"
#include "kernels/flat_optimizer.h"
#include "kernels/packed_update.h"

namespace dslaunch::device {

using kernels::FlatRange;

void HostQueue::copy(void* into, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(into, from, static_cast<size_t>(bytes));
}

void HostQueue::fill(float* into, float value, int64_t numel) {
    std::fill_n(into, numel, value);
}

// Updates the parts of a range in parallel on the team's threads.
template <typename Update>
void HostQueue::by_team(const FlatRange& range, const Update& update) {
    if (range.packed.any()) {
        const kernels::TileRange tiles = kernels::tiles_of(range);
        return team_.for_chunks(tiles.end - tiles.first, [&](int64_t i) {
            kernels::update_tile(range, tiles.first + i, update);
        });
    }
    team_.for_parts(range.numel, [&](int64_t begin, int64_t numel) {
        FlatRange part = range;
        part.begin = range.begin + begin;
        part.numel = numel;
        update(part);
    });
}

void HostQueue::adam_step(const FlatRange& range, const kernels::AdamStep& step) {
    by_team(range, [&](const FlatRange& part) { kernels::adam_step(part, step); });
}

// Distributes the updates over the team's threads, 32 at a time, because each range has only some
// hundred elements.
void HostQueue::adam_steps(std::span<const kernels::AdamUpdate> updates) {
    constexpr int64_t kAtOnce = 32;
    const int64_t all = std::ssize(updates);
    team_.for_chunks((all + kAtOnce - 1) / kAtOnce, [&](int64_t i) {
        for (int64_t k = i * kAtOnce; k < std::min(all, (i + 1) * kAtOnce); ++k)
            kernels::adam_step(updates[static_cast<size_t>(k)].range,
                               updates[static_cast<size_t>(k)].step);
    });
}

void HostQueue::adagrad_step(const FlatRange& range, const kernels::AdagradStep& step) {
    by_team(range, [&](const FlatRange& part) { kernels::adagrad_step(part, step); });
}

void HostQueue::lion_step(const FlatRange& range, const kernels::LionStep& step) {
    by_team(range, [&](const FlatRange& part) { kernels::lion_step(part, step); });
}

void HostQueue::sgd_step(const FlatRange& range, const kernels::SgdStep& step) {
    by_team(range, [&](const FlatRange& part) { kernels::sgd_step(part, step); });
}

void HostQueue::ordered_sum(std::span<const float* const> sources, float scale, float* out,
                            int64_t numel) {
    kernels::ordered_sum(sources, scale, out, numel);
}

void HostQueue::accumulate_sum(std::span<const float* const> sources, float scale, float* into,
                               int64_t numel) {
    kernels::accumulate_sum(sources, scale, into, numel);
}

void HostQueue::to_half(const float* values, uint16_t* out, int64_t numel, DType dtype) {
    kernels::to_half(values, out, numel, dtype);
}

std::vector<double> HostQueue::sums_of_squares(std::span<const FloatArray> arrays) {
    std::vector<double> sums;
    sums.reserve(arrays.size());
    for (const FloatArray& values : arrays)
        sums.push_back(kernels::sum_of_squares(values.data, values.numel));
    return sums;
}

void HostQueue::flag_nonfinite(std::span<const FloatArray> arrays, float* flags) {
    for (size_t i = 0; i < arrays.size(); ++i)
        if (!std::isfinite(kernels::sum_of_squares(arrays[i].data, arrays[i].numel))) flags[i] = 1;
}

Memory HostDevice::allocate(Bytes bytes, std::string_view /*what*/) {
    DSL_CHECK(bytes.value >= 0, "{} bytes", bytes.value);
    constexpr auto kFloatBytes = int64_t{sizeof(float)};
    auto zeros = std::make_shared<ZeroedFloats>((bytes.value + kFloatBytes - 1) / kFloatBytes);
    const std::span<std::byte> all = std::as_writable_bytes(zeros->values());
    // The function that frees the memory also owns it.
    return {all.first(static_cast<size_t>(bytes.value)),
            [owner = std::move(zeros)]() mutable { owner.reset(); }};
}

}  // namespace dslaunch::device
