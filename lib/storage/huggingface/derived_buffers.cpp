#include "storage/huggingface/derived_buffers.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

namespace dslaunch::storage {

bool is_derived_buffer(const std::string& name) {
    static constexpr std::array<const char*, 7> kDerived = {
        "*rotary_emb*.inv_freq", "*rotary_emb*.original_inv_freq",
        "*.attn.bias",           "*.attn.masked_bias",
        "*.attention.bias",      "*.attention.masked_bias",
        "*.position_ids"};
    return std::ranges::any_of(
        kDerived, [&](const char* pattern) { return ::fnmatch(pattern, name.c_str(), 0) == 0; });
}

}  // namespace dslaunch::storage
