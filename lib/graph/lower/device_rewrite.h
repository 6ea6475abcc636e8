// Brings a model, its graph and its batches to the device of the rank. An archive is loaded onto
// the CPU and a tracer writes its own device into the graph; what computes elsewhere must find
// parameters, buffers, attributes, constants and arguments there. lower.h uses the first, whoever
// builds a rank the rest. No shared state.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "graph/archive/model.h"

namespace torch::jit {
struct Block;
}  // namespace torch::jit

namespace dslaunch::graph {

struct LoweredGraph;

// Device constants in BLOCK become DEVICE, tensors in its constants are copied there (numbers of
// one element too, as torch.jit.load's map_location does). Throws c10::Error when the device has no
// memory left.
void rewrite_devices(torch::jit::Block& block, c10::Device device);

// Parameters, buffers and tensors in other attributes. Each stays the tensor object that it is, so
// that ties hold and the module sees the same. Constants in methods are left: graphs are rewritten
// when they are lowered. Nothing to do where all is there already.
void move_to_device(Model& model, c10::Device device);

// Where the model's parameters and buffers lie; the CPU when it has none.
[[nodiscard]] c10::Device device_of(const Model& model);

// VALUES with every tensor on DEVICE: for a GPU from pinned memory on the current stream, so that
// the caller does not wait. On the same device they are passed on as they are.
[[nodiscard]] std::vector<c10::IValue> on_device(std::vector<c10::IValue> values,
                                                 c10::Device device);

// Whether a branch, a loop or a call of the module may compute something in one step that it does
// not in another.
[[nodiscard]] bool has_control_flow(const LoweredGraph& lowered);

}  // namespace dslaunch::graph
