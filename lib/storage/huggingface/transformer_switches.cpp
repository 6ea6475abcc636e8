#include "storage/huggingface/transformer_switches.h"

#include <algorithm>

namespace dslaunch::storage {

bool TransformerConfig::has_window() const {
    return std::ranges::any_of(layers, &TransformerLayer::window);
}

bool TransformerConfig::has_experts() const {
    return std::ranges::any_of(layers, &TransformerLayer::experts);
}

bool TransformerConfig::has_rotary() const {
    return std::ranges::any_of(layers, &TransformerLayer::turns);
}

}  // namespace dslaunch::storage
