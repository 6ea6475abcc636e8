// Buffers that several uses of a step share one after the other: gradient buckets at stages 2 and
// 3, gathered parameters at stage 3. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

// A use from position BEGIN to position END of the step, both included.
struct BufferUse {
    int64_t numel = 0;
    int begin = 0;
    int end = 0;
};

struct ReusedBuffers {
    std::vector<int> buffer_of_use;
    std::vector<int64_t> numel;  // by buffer, the elements of its largest use
};

// Gives each use a buffer that no other use holds at the same time, and keeps the elements of all
// buffers together small. It takes the buffer given back last only if no other is free, so that its
// readers have time to finish. REQUIRES: USES are sorted by begin.
[[nodiscard]] ReusedBuffers assign_buffers(std::span<const BufferUse> uses);

// Returns buffers in elements, with flags. A bucket holds its buffer from the first backward that
// adds to it to the last, a tied bucket always. BUCKETS_OF[s] are the buckets to which segment s's
// backward adds. The result's uses are the trained buckets; -1: no backward adds to it.
[[nodiscard]] ReusedBuffers make_gradient_buffers(const ModelInfo& model, const FlatLayout& layout,
                                                  std::span<const std::vector<int>> buckets_of);

}  // namespace dslaunch::plan
