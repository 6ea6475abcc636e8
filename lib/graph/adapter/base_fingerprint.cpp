#include "graph/adapter/base_fingerprint.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text/fnv1a.h"
#include "graph/memory/memory_order.h"
#include "graph/packed/packed_weight.h"

namespace dslaunch::graph {

std::string base_fingerprint(const Model& model) {
    constexpr int64_t kSamples = 16;
    const at::NoGradGuard no_grad;
    uint64_t hash = kFnv1aBegin;
    for (int p = 0; p < std::ssize(model.parameters()); ++p) {
        const ModelParameter& parameter = model.parameters()[p];
        if (parameter.tensor.requires_grad()) continue;
        const at::Tensor weight = parameter.packed ? parameter.packed->source() : parameter.tensor;
        hash = fnv1a(hash, fmt::format("{} {}", parameter.name, fmt::join(weight.sizes(), "x")));
        const at::Tensor elements = in_memory_order(weight.detach());
        const int64_t count = std::min(kSamples, elements.numel());
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = elements.numel() * i / count;
            const auto value = elements[at].to(at::kDouble).item<double>();
            hash = fnv1a(hash, {reinterpret_cast<const char*>(&value), sizeof value});
        }
        static_cast<void>(model.release_pages(p));
    }
    return fmt::format("{:016x}", hash);
}

}  // namespace dslaunch::graph
