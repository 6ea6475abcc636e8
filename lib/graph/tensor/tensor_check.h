// Proof by trial that a rewritten graph computes what the original does: loss and every gradient on
// one batch, in fp64, where what two orders of one sum may differ by is far below any mistake.
// Where they differ it says at which node. Runs in the worker before anything is trained.
#pragma once

#include <string>
#include <vector>

#include "graph/tensor/tensor_group.h"
#include "graph/tensor/tensor_rewrite.h"

namespace dslaunch::graph {

// LOWERED (for fp32) with fp64 in place of fp32 in the dtypes that it names.
[[nodiscard]] LoweredGraph in_double(const LoweredGraph& lowered);
// MODEL's tensors in fp64, as leaves of autograd, and ARGUMENTS. A parameter whose elements are all
// equal (a bias of zeros) gets others: what is added once too often would not show.
[[nodiscard]] GraphInputs inputs_in_double(const Model& model, std::vector<c10::IValue> arguments);

// The whole graph's loss and gradients.
struct TensorReference {
    at::Tensor loss;
    std::vector<at::Tensor> gradients;  // by model parameter; undefined where it gets none
    double bound = 0;  // of differences, relative to the loss and to the largest gradient
};
[[nodiscard]] TensorReference run_reference(const Model& model, const LoweredGraph& lowered,
                                            const GraphInputs& inputs);

struct TensorCheck {
    double loss = 0;
    double difference = 0;  // the largest, relative to the loss or to the largest gradient
    std::string where;      // "the loss", or the parameter whose gradient that was
    double bound = 0;
};

struct TensorCheckParts {
    const Model& model;
    const LoweredGraph& lowered;  // the original
    const TensorModel& tensor;    // made of it
    const GraphInputs& inputs;    // of the original
    const TensorReference& reference;
};

// By every rank of GROUP. Throws Error{kDiverged} on all of them when loss or gradients differ by
// more than the bound: it names the first node whose value differs, or else the last whose
// gradient does.
[[nodiscard]] TensorCheck check_tensor_model(const TensorCheckParts& parts, TensorGroup& group);

}  // namespace dslaunch::graph
