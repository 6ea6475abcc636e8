// The mean square of each input of a layer on calibration rows. Data path: layer_walk.h -> [here]
// -> storage/gguf_model, whose search for scales weighs the errors of an input's weights with it.
// One thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/machine/memory_limits.h"
#include "kernels/thread_team.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/rope_config.h"

namespace dslaunch::compress {

// Returns the mean square of each input of each layer: a vector [in] under the name of the layer's
// stored weight. The means are over all rows of TEXTS that reached the layer. TEXTS: tokens; no
// text is longer than the context. MEMORY: the memory that may be used; unset: any amount. PROGRESS
// is called after each layer with the number of finished layers. Throws Error{kSetup} if the texts
// need more memory, and what load_decoder() throws.
[[nodiscard]] std::map<std::string, std::vector<float>> input_squares(
    const storage::ModelFolder& folder, const storage::RotaryFrequencies& frequencies,
    const std::vector<std::vector<int32_t>>& texts, const std::optional<MemoryLimit>& memory,
    kernels::ThreadTeam& team, const std::function<void(int64_t layers)>& progress);

}  // namespace dslaunch::compress
