// Final weights without the rows, heads and channels that masks set to zero. The modules that read
// or make them are smaller too. Data path: final weights -> [here] -> weight writer. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/rounding/compressed_parameter.h"

namespace dslaunch::runtime {

// The folder of smaller weights, in the folder of the final weights.
inline constexpr const char* kSmallerFolder = "smaller";

// The parts that are left out, and the check of the result.
struct SmallerWeights {
    std::vector<graph::Shrink> shrinks;
    std::function<at::Tensor(const graph::WeightMask&)> source_of;
    // Computes the loss of a batch with MODEL's tensors as they are then. If it is empty, nothing
    // is checked and no model.pt is written.
    std::function<double()> loss;
    double tolerance = 0;  // the relative difference that a loss may have
};

// Writes model.safetensors into FOLDER, and model.pt if MODEL computes the same loss with the
// smaller weights. Leaves model.pt out if MODEL cannot compute a loss with them, for example
// because its code names sizes. Writes nothing if the loss differs, or if tensors of MODEL share
// memory. MODEL's tensors are the masked final weights, and are so again afterwards. Returns a text
// for the log. Throws Error{kDisk}.
std::string write_smaller(graph::Model& model, const SmallerWeights& smaller,
                          const std::string& folder);

}  // namespace dslaunch::runtime
