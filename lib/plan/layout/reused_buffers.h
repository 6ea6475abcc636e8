// Buffers that several uses of a step share, one after the other: gradient buckets at stages 2 and
// 3, gathered parameters at stage 3. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

// A use of a buffer from position BEGIN to position END of the step, both included.
struct BufferUse {
    int64_t numel = 0;
    int begin = 0;
    int end = 0;
};

// Buffers, and the buffer of each use.
struct ReusedBuffers {
    std::vector<int> buffer_of_use;
    std::vector<int64_t> numel;  // by buffer, the elements of its largest use
};

// Assigns each use a buffer that no other use occupies at the same time, and keeps the sum of all
// buffers' elements small. The buffer that became free last is not reused, so that its readers have
// time to finish. REQUIRES: USES are sorted by begin.
[[nodiscard]] ReusedBuffers assign_buffers(std::span<const BufferUse> uses);

// Returns buffers for the gradients of the buckets. The sizes are in elements and include the
// flags. A bucket occupies a buffer from the first to the last backward that adds to the bucket; a
// tied bucket occupies a buffer for the whole step. BUCKETS_OF[s] lists the buckets to which
// segment s's backward adds. The result has one use for each trained bucket; its buffer_of_use is
// -1 if no backward adds to the bucket.
[[nodiscard]] ReusedBuffers make_gradient_buffers(const ModelInfo& model, const FlatLayout& layout,
                                                  std::span<const std::vector<int>> buckets_of);

}  // namespace dslaunch::plan
