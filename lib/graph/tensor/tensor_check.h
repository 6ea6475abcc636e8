// Tests that a rewritten graph computes the same as the original: the loss and every gradient on
// one batch, in fp64. In fp64, the order of a sum changes the result far less than any mistake
// would. A difference is reported with its node. Runs in the worker before training starts.
#pragma once

#include <string>
#include <vector>

#include "graph/sharing/tensor_group.h"
#include "graph/tensor/tensor_rewrite.h"

namespace dslaunch::graph {

// Returns a copy of LOWERED that computes in fp64: where the graph names fp32 as a dtype, the copy
// names fp64. REQUIRES: LOWERED is a graph for fp32.
[[nodiscard]] LoweredGraph in_double(const LoweredGraph& lowered);
// Returns MODEL's tensors as autograd leaves in fp64, together with ARGUMENTS. If all elements of a
// parameter are equal, as in a bias of zeros, they get different values. Otherwise a bias that is
// added once too often would not be noticed.
[[nodiscard]] GraphInputs inputs_in_double(const Model& model,
                                           const std::vector<IValue>& arguments);

// The loss and gradients of the original graph.
struct TensorReference {
    at::Tensor loss;
    std::vector<at::Tensor> gradients;  // by model parameter; undefined if it has no gradient
    double bound = 0;  // the largest difference allowed, relative to the loss or the largest
                       // gradient
};
// Runs the original graph once on INPUTS, forward and backward. Throws Error{kInput} if its loss
// depends on no trained parameter.
[[nodiscard]] TensorReference run_reference(const Model& model, const LoweredGraph& lowered,
                                            const GraphInputs& inputs);

// The result of a comparison.
struct TensorCheck {
    double loss = 0;
    double difference = 0;  // the largest difference, relative to the loss or to the largest
                            // gradient
    std::string where;      // "the loss", or the parameter whose gradient differs most
    double bound = 0;
};

// The two graphs that are compared, and the batch. The parts must outlive the check.
struct TensorCheckParts {
    const Model& model;
    const LoweredGraph& lowered;  // the original
    const TensorModel& tensor;    // made from LOWERED
    const GraphInputs& inputs;    // inputs of the original
    const TensorReference& reference;
};

// Compares loss and gradients with parts.reference. Every rank of GROUP must call it. Throws
// Error{kDiverged} on all ranks if a difference is larger than the reference's bound. The error
// names the first node whose value differs or, if all values agree, the last node whose gradient
// differs.
[[nodiscard]] TensorCheck check_tensor_model(const TensorCheckParts& parts, TensorGroup& group);

}  // namespace dslaunch::graph
