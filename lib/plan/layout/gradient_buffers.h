// The gradient buckets that share memory at stages 2 and 3. Pure.
#pragma once

#include <span>
#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/layout/reused_buffers.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

// A bucket holds its buffer from the first backward that adds to it to the last, a tied bucket
// always. BUCKETS_OF[s] are the buckets that the backward of segment s adds to. The result's uses
// are the trained buckets; -1: no backward adds to it. Buffers are in elements, flags included.
[[nodiscard]] ReusedBuffers make_gradient_buffers(const ModelInfo& model, const FlatLayout& layout,
                                                  std::span<const std::vector<int>> buckets_of);

}  // namespace dslaunch::plan
