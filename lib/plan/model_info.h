// What the plan needs to know of a model: segments, parameters and sizes, without LibTorch. Filled
// by graph/measure.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch {

struct ParameterInfo {
    std::string name;
    int64_t numel = 0;
    int64_t element_bytes = 4;
    bool trainable = true;
    int64_t rows = 1;  // extent of the first dimension
};

struct SegmentInfo {
    std::string name;
    std::vector<int> parameters;  // indices into ModelInfo::parameters, each once
    int64_t nodes = 0;
    Bytes output_bytes;      // the live values at its end, one micro step
    Bytes activation_bytes;  // what autograd keeps for its backward, besides parameters and inputs
    int64_t forward_flops = 0;  // matrix products and convolutions: 2 per multiply-add
    bool backward = true;       // has a path to a trainable parameter
};

struct ModelInfo {
    std::vector<ParameterInfo> parameters;
    std::vector<SegmentInfo> segments;
    Bytes buffer_bytes;
    Bytes batch_bytes;         // one micro batch
    int64_t loss_classes = 0;  // of the cross entropy that gives the loss; 0: another loss

    [[nodiscard]] int64_t parameter_numel() const;
    [[nodiscard]] int64_t trainable_numel() const;
    [[nodiscard]] int64_t forward_flops() const;
};

}  // namespace dslaunch
