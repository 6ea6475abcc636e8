// The trained weights as files: model.safetensors with the module's own names, and model.pt, which
// stock PyTorch loads.
#pragma once

#include <string>

#include "graph/model.h"

namespace dslaunch {

// Writes both into FOLDER, made if missing, each whole or not at all. A tied parameter is written
// under all its names. Throws Error{kDisk} naming path, cause and bytes.
void save_weights(Model& model, const std::string& folder);

// Makes FOLDER and throws Error{kDisk} naming it, need and free bytes when the weights will not fit
// there: said before training, not after it. What else fills the disk meanwhile is found at the
// write.
void check_room_for_weights(Model& model, const std::string& folder);

}  // namespace dslaunch
