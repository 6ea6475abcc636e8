// Tests that a rewritten graph computes the same as the original: loss and every gradient on one
// batch, in fp64. There, two orders of one sum differ by far less than any mistake. A difference is
// reported with its node. Runs in the worker before anything is trained.
#pragma once

#include <string>
#include <vector>

#include "graph/sharing/tensor_group.h"
#include "graph/tensor/tensor_rewrite.h"

namespace dslaunch::graph {

// Returns LOWERED (for fp32) with fp64 in place of fp32 in the dtypes that it names.
[[nodiscard]] LoweredGraph in_double(const LoweredGraph& lowered);
// Returns MODEL's tensors in fp64, as leaves of autograd, and ARGUMENTS. A parameter of equal
// elements (a bias of zeros) gets other values: else a bias added once too often would not show.
[[nodiscard]] GraphInputs inputs_in_double(const Model& model,
                                           const std::vector<IValue>& arguments);

// The whole graph's loss and gradients.
struct TensorReference {
    at::Tensor loss;
    std::vector<at::Tensor> gradients;  // by model parameter; undefined: no gradient
    double bound = 0;  // largest difference allowed, relative to the loss and to the largest
                       // gradient
};
[[nodiscard]] TensorReference run_reference(const Model& model, const LoweredGraph& lowered,
                                            const GraphInputs& inputs);

struct TensorCheck {
    double loss = 0;
    double difference = 0;  // the largest difference, relative to the loss or to the largest
                            // gradient
    std::string where;      // "the loss", or the parameter whose gradient differs most
    double bound = 0;
};

struct TensorCheckParts {
    const Model& model;
    const LoweredGraph& lowered;  // the original
    const TensorModel& tensor;    // made from LOWERED
    const GraphInputs& inputs;    // inputs of the original
    const TensorReference& reference;
};

// Called by every rank of GROUP. Throws Error{kDiverged} on all of them if loss or gradients differ
// by more than the bound. The error names the first node whose value differs, or else the last
// whose gradient differs.
[[nodiscard]] TensorCheck check_tensor_model(const TensorCheckParts& parts, TensorGroup& group);

}  // namespace dslaunch::graph
