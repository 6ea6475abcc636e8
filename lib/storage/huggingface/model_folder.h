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

// The files of a folder in the way of Hugging Face: model.safetensors, or else what its
// model.safetensors.index.json names, also in folders below; empty: neither is there. Throws
// Error{kInput} for an index that cannot be read or that names a file outside of FOLDER.
[[nodiscard]] std::vector<std::string> safetensors_files_of(const std::string& folder);

// Throws Error{kInput} naming the file if FOLDER, which may be missing, holds what would be read
// together with a model.safetensors that is written there, or instead of it: the index or a shard
// of another model, or the config of an adapter.
void require_room_for_model(const std::string& folder);

struct ModelFolder {
    std::string config_path;
    TransformerConfig config;  // not tied where the weights have an output layer of their own
    std::string index_path;    // of model.safetensors.index.json; empty: it is not read
    std::vector<std::string> weights;  // paths of the .safetensors files; empty: there are none

    // All that a run reads of it.
    [[nodiscard]] std::vector<std::string> files() const;
};

// PATH: as above. Throws Error{kInput} naming the file as parse_transformer_config(),
// safetensors_files_of() and has_own_head() do.
[[nodiscard]] ModelFolder open_model_folder(const std::string& path);

// Returns the config.json for weights that a model of the folder at PATH writes: TEXT, its own, or
// another where the weights are those of its text part, or are not tied as TEXT says. One that is
// not read here is returned as it is.
[[nodiscard]] std::string config_for_weights(const std::string& path, std::string text);

// Returns the architecture for messages, with the model that it is a part of.
[[nodiscard]] std::string architecture_text(const TransformerConfig& config);

// Throws Error{kInput} that says which files the folder of FOLDER needs if it has no weights.
void require_weights(const ModelFolder& folder);

}  // namespace dslaunch::storage
