#include "storage/export/tensor_source.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "storage/export/floats.h"

namespace dslaunch::storage {

bool has_states(const CheckpointTensor& tensor) {
    return tensor.kind == TensorKind::kTrained;
}

DType dtype_of(const CheckpointTensor& tensor, int state) {
    return state == kWeights ? tensor.dtype : DType::kF32;
}

TensorStats stats_of(const TensorSource& source, int tensor, int state) {
    const CheckpointTensor& facts = source.tensors()[tensor];
    TensorStats stats{.min = std::numeric_limits<double>::infinity(),
                      .max = -std::numeric_limits<double>::infinity()};
    double sum = 0, squares = 0;
    int64_t finite_count = 0;
    std::vector<double> values;
    source.for_each(tensor, state, {0, facts.numel_of(state)},
                    [&](const Range&, std::span<const std::byte> bytes) {
                        to_doubles(bytes, dtype_of(facts, state), values);
                        for (const double value : values) {
                            if (std::isnan(value)) {
                                ++stats.nan_count;
                            } else if (std::isinf(value)) {
                                ++stats.infinite_count;
                            } else {
                                ++finite_count;
                                sum += value;
                                squares += value * value;
                                stats.min = std::min(stats.min, value);
                                stats.max = std::max(stats.max, value);
                            }
                        }
                    });
    if (finite_count == 0)
        return {.nan_count = stats.nan_count, .infinite_count = stats.infinite_count};
    stats.norm = std::sqrt(squares);
    stats.mean = sum / static_cast<double>(finite_count);
    return stats;
}

}  // namespace dslaunch::storage
