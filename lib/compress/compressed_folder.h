// Writes a Hugging Face folder with rounded weights, layer by layer. A finished layer is kept in
// OUT.partial until the folder is complete, so that a run that was killed continues there. Data
// path: a model's folder, calibration texts -> layer_walk.h, compensation.h -> [here] -> OUT. One
// thread calls; the team's threads compute.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compress/packed_tensors.h"
#include "kernels/thread_team.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::compress {

// A model and what is to be made of it.
struct FolderTask {
    std::string from;                              // a Hugging Face folder
    const storage::ModelFolder* folder = nullptr;  // the same, opened
    std::string out;                               // folder to write
    FolderForm form;
    std::vector<std::vector<int32_t>> texts;  // for the compensation of errors; empty: none
    storage::RotaryFrequencies frequencies;
    bool is_forced = false;                        // replaces files in OUT
    std::function<void(int64_t layers)> progress;  // called after each layer
};

// A folder that was written.
struct FolderResult {
    int64_t weights = 0;  // numbers that are rounded
    int64_t weight_bytes_before = 0, weight_bytes_after = 0;
    int64_t bytes_before = 0, bytes_after = 0;  // of all tensors
    // The relative error of each weight's outputs on the texts; without texts, of the weight.
    std::vector<std::pair<std::string, double>> errors;
    int64_t layers_kept = 0;  // that an earlier run had finished
};

// Throws Error{kInput} naming the file for a folder that is already rounded, that stores its
// matrices transposed or is a part of a larger model, and for an OUT that is used. Writes nothing.
void require_compressible(const FolderTask& task);

// Throws what require_compressible() throws; Error{kInput} naming the tensor for a number that is
// not finite; Error{kDisk}; and what load_decoder() throws.
[[nodiscard]] FolderResult compress_folder(const FolderTask& task, kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
