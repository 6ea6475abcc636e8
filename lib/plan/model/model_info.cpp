#include "plan/model/model_info.h"

namespace dslaunch::plan {

int64_t ModelInfo::parameter_numel() const {
    int64_t total = 0;
    for (const ParameterInfo& parameter : parameters)
        total += parameter.weight_numel > 0 ? parameter.weight_numel : parameter.numel;
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

std::vector<bool> ModelInfo::trained() const {
    std::vector<bool> trained(parameters.size(), false);
    for (const SegmentInfo& segment : segments) {
        if (!segment.backward) continue;
        for (const int parameter : segment.parameters) {
            const auto p = static_cast<size_t>(parameter);
            trained[p] = parameters[p].trainable;
        }
    }
    return trained;
}

std::vector<int> ModelInfo::untrained() const {
    const std::vector<bool> is_trained = trained();
    std::vector<int> others;
    for (int p = 0; p < std::ssize(is_trained); ++p)
        if (!is_trained[p]) others.push_back(p);
    return others;
}

}  // namespace dslaunch::plan
