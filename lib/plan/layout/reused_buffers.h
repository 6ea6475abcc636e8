// Buffers that several uses of a step share one after the other: gradient buckets at stages 2 and
// 3, gathered parameters at stage 3. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslaunch::plan {

// One use, from position BEGIN to position END of the step, both included.
struct BufferUse {
    int64_t numel = 0;
    int begin = 0;
    int end = 0;
};

struct ReusedBuffers {
    std::vector<int> buffer_of_use;
    std::vector<int64_t> numel;  // of each buffer: its largest use
};

// Gives each use a buffer that no other use holds at the same time, and keeps the elements of all
// buffers together small. Of the buffers that are free the one given back last is taken only when
// nothing else is: who still reads it has a use's time to finish. REQUIRES: uses by begin.
[[nodiscard]] ReusedBuffers assign_buffers(std::span<const BufferUse> uses);

}  // namespace dslaunch::plan
