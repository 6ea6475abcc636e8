// A model as PyTorch loads it, for the reference of verify: every tensor by itself, sharing memory
// as in the archive. It does not go through what model.h makes of tied tensors, nor through the
// records of its own reader. No shared state.
#pragma once

#include <string>

#include "graph/archive/model.h"

namespace dslaunch::job {

// TorchScript archives go through torch::jit::load. The weights of an exported program are read
// once more, by LibTorch's reader of archives, and share a storage where its tables name one
// record. A folder of Hugging Face is read as for the job. Throws as Model::load does. REQUIRES:
// Model::load has read PATH, which checks it.
[[nodiscard]] graph::Model load_as_torch(const std::string& path);

}  // namespace dslaunch::job
