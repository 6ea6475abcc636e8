// The files of a model's folder as Hugging Face lays it out: config.json, and weights in
// .safetensors files. Data path: TARGET -> [here] -> graph/archive/mapped_archive.h, and the
// launcher, which refuses early. Nothing in the folder is executed. No state; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "storage/files/safetensors.h"
#include "storage/huggingface/transformer_config.h"

namespace dslaunch::storage {

// Returns the folder of the model at PATH if that is a folder with a config.json or a file
// NAME.json, which stands for a folder without weights; nothing: PATH is an archive, or no model.
[[nodiscard]] std::optional<std::string> model_folder_of(const std::string& path);

// Returns the files of a Hugging Face folder: model.safetensors, or else the ones that its
// model.safetensors.index.json names, also in folders below; empty: neither is there. Throws
// Error{kInput} for an index that cannot be read or that names a file outside of FOLDER.
[[nodiscard]] std::vector<std::string> safetensors_files_of(const std::string& folder);

// Throws Error{kInput} naming the file if FOLDER, which may be missing, holds a file that would be
// read together with a new model.safetensors, or instead of it: the index or a shard of another
// model, or the config of an adapter.
void require_room_for_model(const std::string& folder);

struct ModelFolder {
    std::string config_path;
    TransformerConfig config;          // not tied if the weights have an output layer of their own
    std::string index_path;            // of model.safetensors.index.json; empty: it is not read
    std::vector<std::string> weights;  // paths of the .safetensors files; empty: there are none

    // Returns all files of it that a run reads.
    [[nodiscard]] std::vector<std::string> files() const;
};

// Opens PATH, as above. Throws Error{kInput} naming the file as parse_transformer_config(),
// safetensors_files_of() and has_own_head() do.
[[nodiscard]] ModelFolder open_model_folder(const std::string& path);

// Returns the config.json for weights that a model of the folder at PATH writes. It is TEXT, its
// own, or another if the weights belong to its text part or are not tied as TEXT says. A config
// that is not read here is returned unchanged.
[[nodiscard]] std::string config_for_weights(const std::string& path, std::string text);

// Returns the architecture for messages, with the model that it is a part of.
[[nodiscard]] std::string architecture_text(const TransformerConfig& config);

// Throws Error{kInput} that names a file in FOLDER's folder that was not fetched or copied whole
// (download_fault_at()), or, if it has no weights, the files that it needs.
void require_weights(const ModelFolder& folder);

// Return the names of the two weights in the modules of a family.
[[nodiscard]] std::string embedding_name(const TransformerConfig& config);
[[nodiscard]] std::string head_name(const TransformerConfig& config);

// Returns the name in the modules of the weight that a file calls STORED; nothing if it belongs to
// the part of a model that sees images.
[[nodiscard]] std::optional<std::string> name_in_modules(const TransformerConfig& config,
                                                         const std::string& stored);

// Returns whether type, shape and numbers are the same.
[[nodiscard]] bool are_equal(const SafetensorsEntry& a, const SafetensorsEntry& b);

// Returns whether FILES have both weights, with other numbers. Throws Error{kInput} naming the file
// as parse_safetensors() does.
[[nodiscard]] bool has_own_head(const TransformerConfig& config,
                                const std::vector<std::string>& files);

}  // namespace dslaunch::storage
