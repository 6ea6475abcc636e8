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
    // Computes the loss of a batch with MODEL's current tensors. If the function is empty, the
    // smaller weights are not checked, and no model.pt is written.
    std::function<double()> loss;
    double tolerance = 0;  // the relative difference that a loss may have
};

// Writes the smaller weights to model.safetensors in FOLDER. Also writes model.pt if MODEL can
// compute a loss with the smaller weights. Some models cannot, for example because their code
// contains sizes of tensors. Writes nothing if the smaller weights change the loss, or if tensors
// of MODEL share memory. REQUIRES: MODEL has the masked final weights. The call restores them
// before it returns. Returns a text for the log. Throws Error{kDisk}.
std::string write_smaller(graph::Model& model, const SmallerWeights& smaller,
                          const std::string& folder);

}  // namespace dslaunch::runtime
