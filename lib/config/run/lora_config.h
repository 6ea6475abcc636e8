// dslaunch.lora: low-rank adapters beside a model's frozen weights. Part of RunConfig.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::config {

// The form in which the model's own weights are held beside adapters.
enum class LoraBase : uint8_t { kAsIs, kInt8, kInt4, kNf4 };

struct LoraConfig {
    int64_t r = 0;     // rank of the adapters; 0: the model trains without any
    double alpha = 0;  // an adapter's output is multiplied by alpha / r
    double dropout = 0;
    bool rslora = false;  // the factor is alpha / sqrt(r) (arXiv:2312.03732)
    // Names of linear layers: `*` for any characters, or the end of a name. Empty: all but the last
    // that forward computes.
    std::vector<std::string> targets;
    // Names of modules, likewise, whose parameters train as they are and are saved beside the
    // adapters.
    std::vector<std::string> modules_to_save;
    LoraBase base = LoraBase::kAsIs;
    std::string init;  // folder of an adapter to begin with; empty: a new one

    [[nodiscard]] bool on() const { return r > 0; }
    [[nodiscard]] double scale() const {
        const auto rank = static_cast<double>(r);
        return alpha / (rslora ? std::sqrt(rank) : rank);
    }
    bool operator==(const LoraConfig&) const = default;
};

}  // namespace dslaunch::config
