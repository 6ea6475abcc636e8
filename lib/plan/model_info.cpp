#include "plan/model_info.h"

namespace dslaunch {

int64_t ModelInfo::parameter_numel() const {
    int64_t total = 0;
    for (const ParameterInfo& parameter : parameters) total += parameter.numel;
    return total;
}

int64_t ModelInfo::trainable_numel() const {
    int64_t total = 0;
    for (const ParameterInfo& parameter : parameters)
        if (parameter.trainable) total += parameter.numel;
    return total;
}

int64_t ModelInfo::forward_flops() const {
    int64_t total = 0;
    for (const SegmentInfo& segment : segments) total += segment.forward_flops;
    return total;
}

}  // namespace dslaunch
