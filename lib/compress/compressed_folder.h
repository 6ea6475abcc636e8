// Writes a Hugging Face folder with rounded weights, layer by layer. A finished layer is kept in
// OUT.partial until the folder is complete, so that a run that was killed continues there. Data
// path: folder_task.h, calibration texts -> layer_walk.h, compensation.h -> [here] -> OUT. One
// thread calls; the team's threads compute.
#pragma once

#include <cstdint>

#include "compress/folder_task.h"
#include "compress/layer_files.h"
#include "kernels/thread_team.h"

namespace dslaunch::compress {

// A folder that was written.
struct FolderResult {
    int64_t weights = 0;  // numbers that are rounded
    int64_t weight_bytes_before = 0, weight_bytes_after = 0;
    int64_t bytes_before = 0, bytes_after = 0;  // of all tensors
    WeightErrors errors;
    int64_t layers_kept = 0;  // layers that an earlier run had finished
};

// Throws the errors of require_compressible() and load_decoder(). Throws Error{kInput} that names
// the tensor in these cases: the tensor is missing; its numbers, or the inputs of its layer, are
// not finite; its numbers are too large for 16-bit scales; or the task requires groups, and the
// layer's inputs cannot be divided into groups. Throws Error{kInput} if a file of the model changes
// during the run. Throws Error{kDisk} if writing fails.
[[nodiscard]] FolderResult compress_folder(const FolderTask& task, kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
