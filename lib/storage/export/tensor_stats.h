// The figures of a tensor's values that fit in a line. Streams. One thread.
#pragma once

#include <cstdint>

#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

// The figures are those of the finite values, in fp64; all are 0 where there are none.
struct TensorStats {
    double norm = 0;  // Euclidean
    double min = 0;
    double max = 0;
    double mean = 0;
    int64_t nan_count = 0;
    int64_t infinite_count = 0;
};

// Throws as SOURCE does.
[[nodiscard]] TensorStats stats_of(const TensorSource& source, int tensor, int state);

}  // namespace dslaunch::storage
