// A layer of a Hugging Face model as a function of its weights, with gradients by LibTorch. Data
// path: storage/huggingface/folder_weights.h -> [here] -> compress/layer_descent.h. One thread
// calls; LibTorch's threads compute.
#pragma once

#include "compress/folder_task.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::worker {

// Returns a function that makes layers of the model that CONFIG describes, in fp32. CONFIG must
// outlive the returned function. The function throws Error{kInput} naming the file if a weight is
// missing or has the wrong shape.
[[nodiscard]] compress::MakeLayerFunction torch_layers(const storage::TransformerConfig& config);

}  // namespace dslaunch::worker
