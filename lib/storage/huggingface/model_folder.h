// The files of a model's folder as Hugging Face lays it out: config.json, and weights in
// .safetensors files. Data path: TARGET -> [here] -> graph/archive/huggingface_folder.h, and the
// launcher, which refuses early. Nothing in the folder is executed. No state; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "storage/huggingface/transformer_config.h"

namespace dslaunch::storage {

// The folder of the model at PATH if that is a folder with a config.json, or a file NAME.json,
// which stands for a folder without weights; nothing: PATH is an archive, or no model.
[[nodiscard]] std::optional<std::string> model_folder_of(const std::string& path);

// The files of a folder in the way of Hugging Face: what its model.safetensors.index.json names, or
// model.safetensors; empty: neither is there. Throws Error{kInput} for an index that cannot be
// read, that names a file outside of FOLDER, or that stands beside a model.safetensors it does not
// name: nothing says which of the two is the model.
[[nodiscard]] std::vector<std::string> safetensors_files_of(const std::string& folder);

// Throws Error{kInput} naming the file if FOLDER, which may be missing, holds what would be read
// together with a model.safetensors that is written there, or instead of it: the index or a shard
// of another model, or the config of an adapter.
void require_room_for_model(const std::string& folder);

struct ModelFolder {
    std::string config_path;
    TransformerConfig config;
    std::string index_path;            // model.safetensors.index.json; empty: there is none
    std::vector<std::string> weights;  // paths of the .safetensors files; empty: there are none

    // All that a run reads of it.
    [[nodiscard]] std::vector<std::string> files() const;
};

// PATH: as above. Throws Error{kInput} naming the file as parse_transformer_config() and
// safetensors_files_of() do.
[[nodiscard]] ModelFolder open_model_folder(const std::string& path);

// Throws Error{kInput} that says which files the folder of FOLDER needs if it has no weights.
void require_weights(const ModelFolder& folder);

}  // namespace dslaunch::storage
