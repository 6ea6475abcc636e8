// The files of a model's folder in Hugging Face's layout: config.json, and weights in .safetensors
// files. Data path: TARGET -> [here] -> graph/archive/mapped_archive.h, and the launcher, which
// refuses bad folders early. Nothing in the folder is executed. No state; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files/safetensors.h"
#include "storage/huggingface/transformer_config.h"

namespace dslaunch::storage {

// Returns the folder of the model at PATH if PATH is a folder with a config.json, or a file
// NAME.json, which stands for a folder without weights; nothing if PATH is an archive or no model.
[[nodiscard]] std::optional<std::string> model_folder_of(const std::string& path);

// The name of a GGUF file that serves as a folder's weights if the folder has no other weights.
inline constexpr std::string_view kGgufOfFolder = "model.gguf";

// Returns the weight files of a Hugging Face folder: model.safetensors, or else the files that
// model.safetensors.index.json names (also in subfolders), or else kGgufOfFolder. Returns an empty
// list if the folder has no such file. Throws Error{kInput} for an index that cannot be read or
// that names a file outside of FOLDER.
[[nodiscard]] std::vector<std::string> safetensors_files_of(const std::string& folder);

// Throws Error{kInput} naming the file if FOLDER contains a file that belongs to another model and
// that programs would read together with a new model.safetensors, or instead of it. Such files are
// an index, a shard, and the config of an adapter. FOLDER may be missing.
void require_room_for_model(const std::string& folder);

// A model's config and the paths of its files.
struct ModelFolder {
    std::string config_path;
    TransformerConfig config;          // not tied if the weights have a separate output layer
    std::string index_path;            // path of model.safetensors.index.json; empty if not used
    std::vector<std::string> weights;  // paths of .safetensors files; empty if there are none

    // Returns all files of the folder that a run reads.
    [[nodiscard]] std::vector<std::string> files() const;
};

// Opens PATH, which model_folder_of() has accepted. Throws Error{kInput} naming the file, as
// parse_transformer_config(), safetensors_files_of() and has_own_head() do.
[[nodiscard]] ModelFolder open_model_folder(const std::string& path);

// Returns the config.json for weights that were made with the model at PATH. TEXT is that model's
// own config.json. The result differs from TEXT if the weights belong only to the model's text
// part, or if TEXT is wrong about whether the output layer is tied to the embedding. A config that
// cannot be read here is returned unchanged.
[[nodiscard]] std::string config_for_weights(const std::string& path, std::string text);

// Returns the architecture for messages, and the model that it is a part of, if any.
[[nodiscard]] std::string architecture_text(const TransformerConfig& config);

// Throws Error{kInput} naming a file beside FOLDER's config that was not fetched or copied
// completely (download_fault_at()). If there are no weights, the error names the files that are
// needed.
void require_weights(const ModelFolder& folder);

// Return the names of two weights in the modules of a family: the embedding's and the output
// layer's.
[[nodiscard]] std::string embedding_name(const TransformerConfig& config);
[[nodiscard]] std::string head_name(const TransformerConfig& config);

// Returns the modules' name for the weight that a file calls STORED; nothing if the weight belongs
// to the part of a model that reads images.
[[nodiscard]] std::optional<std::string> name_in_modules(const TransformerConfig& config,
                                                         const std::string& stored);

// Returns true if type, shape and numbers are the same.
[[nodiscard]] bool are_equal(const SafetensorsEntry& a, const SafetensorsEntry& b);

// Returns true if FILES contain the embedding's and the output layer's weights and these differ.
// Throws Error{kInput} naming the file, as parse_safetensors() does.
[[nodiscard]] bool has_own_head(const TransformerConfig& config,
                                const std::vector<std::string>& files);

}  // namespace dslaunch::storage
