// The task of compressing a Hugging Face folder, and the checks of its two folders before work
// begins. Data path: `dslaunch compress` -> [here] -> compressed_folder.h. No state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine/memory_limits.h"
#include "compress/layer_descent.h"
#include "compress/packed_tensors.h"
#include "storage/huggingface/folder_weights.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/rope_config.h"

namespace dslaunch::compress {

// A function that makes layer LAYER of the model, with the weights of WEIGHTS. NAMES are the names
// of the weights that the layer is a function of, in their order.
using MakeLayerFunction = std::function<std::unique_ptr<LayerFunction>(
    int64_t layer, std::span<const std::string> names, storage::FolderWeights& weights)>;

// The input, the output and the options of one call of compress_folder().
struct FolderTask {
    std::string from;                              // a Hugging Face folder
    const storage::ModelFolder* folder = nullptr;  // FROM, opened
    std::string out;                               // folder to write
    FolderForm form;
    std::vector<std::vector<int32_t>> texts;  // calibration texts; empty: errors are not
                                              // compensated
    storage::RotaryFrequencies frequencies;
    bool is_forced = false;                        // replaces files in OUT
    std::function<void(int64_t layers)> progress;  // called after each layer
    bool requires_groups = false;  // refuses a layer whose inputs no group divides evenly
    std::optional<MemoryLimit> memory = std::nullopt;  // that may be used; unset: any amount
    // If it is set, a descent on the outputs of each layer changes the rounding of its weights.
    // Requires texts.
    MakeLayerFunction layer_function = nullptr;
    DescentOptions descent = {};
};

// Returns OUT without slashes at its end.
[[nodiscard]] std::string out_of(const FolderTask& task);
// Returns the folder of finished layers, beside OUT.
[[nodiscard]] std::string partial_of(const FolderTask& task);
// Returns a text that identifies the result. If the texts of two runs are equal, both runs read the
// same model files and write the same bytes.
[[nodiscard]] std::string options_text(const FolderTask& task);

// Throws Error{kInput}, naming the file, if the folder is already rounded, stores its matrices
// transposed, is a part of a larger model or has GGUF weights. Also throws it if OUT is used, or
// has files that would be read instead of the result. Accepts the incomplete OUT of a killed run of
// the same task. Writes nothing.
void require_compressible(const FolderTask& task);

}  // namespace dslaunch::compress
