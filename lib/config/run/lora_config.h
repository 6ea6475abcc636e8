// dslaunch.lora: low-rank adapters beside a model's frozen weights. Part of RunConfig.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::config {

// The form in which the weights of the model's own linear layers are stored while adapters train.
enum class LoraBase : uint8_t { kAsIs, kInt8, kInt4, kNf4 };

// The settings of the adapters; with r == 0 the others have no effect.
struct LoraConfig {
    int64_t r = 0;     // rank of the adapters; 0 if there are no adapters
    double alpha = 0;  // an adapter's output is multiplied by alpha / r
    double dropout = 0;
    bool rslora = false;  // the factor is alpha / sqrt(r) (arXiv:2312.03732)
    // The linear layers that get adapters: ends of names, or patterns in which `*` stands for any
    // characters. If `targets` is empty, all linear layers get adapters, except the layer that
    // forward computes last.
    std::vector<std::string> targets;
    // Modules whose own parameters are trained and saved with the adapters: patterns or ends of
    // names, as in `targets`.
    std::vector<std::string> modules_to_save;
    LoraBase base = LoraBase::kAsIs;
    std::string init;  // folder of an adapter to start from; empty for a new adapter

    // Returns true if adapters are trained.
    [[nodiscard]] bool on() const { return r > 0; }
    // Returns the factor of an adapter's output. REQUIRES: on().
    [[nodiscard]] double scale() const {
        const auto rank = static_cast<double>(r);
        return alpha / (rslora ? std::sqrt(rank) : rank);
    }
    bool operator==(const LoraConfig&) const = default;
};

}  // namespace dslaunch::config
