// A folder's model with only some of its layers: layer_reduction without a teacher. Data path:
// storage/huggingface -> [here] -> mapped_archive.h; at the end of a run -> its config.json. No
// state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/huggingface/model_folder.h"

namespace dslaunch::graph {

// Throws Error{kConfig} if PATH is not a Hugging Face folder, or if PREFIX ("model.layers") is not
// the common beginning of its layers' names.
void require_layers_named(const std::string& path, const std::string& prefix);

// The layers that a smaller model takes from a folder.
class KeptLayers {
  public:
    // Chooses LAYERS of FOLDER's model: layer LAYERS[i] becomes layer i of the smaller model.
    // Throws Error{kConfig} if a layer does not exist or occurs twice in LAYERS, or if the layers
    // of FOLDER's model have different structures.
    KeptLayers(const storage::ModelFolder& folder, std::vector<int64_t> layers);

    // Returns the config of the smaller model.
    [[nodiscard]] storage::TransformerConfig config() const;
    // Returns the name that the weight NAME of the smaller model has in the folder.
    [[nodiscard]] std::string name_in_folder(const std::string& name) const;
    // Returns true if the weight NAME of the folder is in a layer that is not kept.
    [[nodiscard]] bool is_left(const std::string& name) const;

  private:
    // Returns the number of the layer that contains the weight NAME; -1 if no layer contains it.
    [[nodiscard]] int64_t layer_of(const std::string& name) const;

    storage::TransformerConfig config_;
    std::vector<int64_t> layers_;
    std::string prefix_;  // with the dot
};

// Changes config.json in FOLDER, so that it describes the model with only COUNT of its layers.
// Throws Error{kInput} if the new config.json would not describe such a model, and Error{kDisk}.
void write_fewer_layers(const std::string& folder, int64_t count);

}  // namespace dslaunch::graph
