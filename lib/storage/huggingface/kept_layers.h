// A folder's model with only some of its layers: layer_reduction without a teacher. Data path:
// model_folder.h -> [here] -> graph/archive; at the end of a run -> its config.json. No state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {

// Returns the name that the layers of CONFIG's modules have in common, such as "model.layers".
[[nodiscard]] std::string name_of_layers(const TransformerConfig& config);

// The layers that a smaller model takes from a folder.
class KeptLayers {
  public:
    // Layer I of the smaller model is layer LAYERS[I] of FOLDER's. Throws Error{kConfig} if a layer
    // does not exist or is named twice, or if the layers of FOLDER's model are of several kinds.
    KeptLayers(const ModelFolder& folder, std::vector<int64_t> layers);

    // Returns the config of the smaller model.
    [[nodiscard]] TransformerConfig config() const;
    // Returns the name in the folder of the smaller model's weight NAME.
    [[nodiscard]] std::string name_in_folder(const std::string& name) const;
    // Returns true if the weight NAME of the folder is in a layer that is not kept.
    [[nodiscard]] bool is_left(const std::string& name) const;

  private:
    // Returns the number of the layer in whose modules the weight NAME is; -1 if it is in none.
    [[nodiscard]] int64_t layer_of(const std::string& name) const;

    TransformerConfig config_;
    std::vector<int64_t> layers_;
    std::string prefix_;  // with the dot
};

// Rewrites config.json in FOLDER, which is that of a whole model, for a model with COUNT of its
// layers. Throws Error{kInput} if the result would not describe such a model, and Error{kDisk}.
void write_fewer_layers(const std::string& folder, int64_t count);

}  // namespace dslaunch::storage
