// Checkpoints of DeepSpeed as fixtures, and the comparison with the values that DeepSpeed's own
// converters read out of them.
#pragma once

#include <algorithm>
#include <string>

#include "base/text_bytes.h"
#include "storage/files/safetensors.h"
#include "storage/foreign/deepspeed_model.h"
#include "support/catch.h"

namespace dslaunch::test {

inline const std::string kFixtures = fixture_path("deepspeed");

inline std::string contents(const storage::TensorSource& source, int tensor, int state) {
    std::string bytes;
    const int64_t numel = source.tensors()[static_cast<size_t>(tensor)].numel();
    source.for_each(tensor, state, {0, numel}, [&](const Range&, std::span<const std::byte> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return bytes;
}

inline int find(const storage::TensorSource& source, const std::string& name) {
    for (size_t i = 0; i < source.tensors().size(); ++i) {
        const storage::CheckpointTensor& tensor = source.tensors()[i];
        if (tensor.name == name || std::ranges::find(tensor.aliases, name) != tensor.aliases.end())
            return static_cast<int>(i);
    }
    return -1;
}

// Compares weights and states with FILE, which names states after the parameter.
inline void check_values(const storage::TensorSource& source, const std::string& file) {
    const storage::SafetensorsFile expected(file);
    const std::vector<std::string>& states = source.checkpoint()->states;
    for (const storage::SafetensorsEntry& entry : expected.entries()) {
        INFO(entry.name);
        std::string name = entry.name;
        int state = storage::kWeights;
        for (int k = 0; k < std::ssize(states); ++k) {
            const std::string ending = "." + states[static_cast<size_t>(k)];
            if (!name.ends_with(ending)) continue;
            state = k;
            name.resize(name.size() - ending.size());
        }
        const int index = find(source, name);
        REQUIRE(index >= 0);
        const storage::CheckpointTensor& tensor = source.tensors()[static_cast<size_t>(index)];
        CHECK(tensor.shape == entry.shape);
        if (state == storage::kWeights && tensor.dtype != entry.dtype)
            continue;  // 16 bits, widened later
        CHECK(contents(source, index, state) == text_in(entry.bytes));
    }
}

}  // namespace dslaunch::test
