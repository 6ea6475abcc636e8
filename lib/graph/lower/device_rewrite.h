// Brings a model, its graph and its batches to the device of the rank. An archive is loaded onto
// the CPU and a tracer writes its own device into the graph; a rank on another device must find
// parameters, buffers, attributes, constants and arguments there. lower.h uses rewrite_devices, the
// code that builds a rank the rest. No shared state.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "graph/archive/model.h"

namespace dslaunch::graph {

struct LoweredGraph;

// Makes device constants in BLOCK DEVICE, and copies tensors in its constants there (numbers of one
// element too, as torch.jit.load's map_location does). Throws c10::Error when the device has no
// memory left.
void rewrite_devices(Block& block, c10::Device device);

// Does the same for all methods of MODULE and of the modules in it, before any of them has run: for
// a module that is called as it is, without being lowered.
void rewrite_methods(const Module& module, c10::Device device);

// Moves parameters, buffers and tensors in other attributes. Each stays the same tensor object, so
// that ties hold and the module sees the moved one. Constants in methods are left: graphs are
// rewritten when they are lowered. Does nothing if all is on DEVICE already.
void move_to_device(Model& model, c10::Device device);

// Does the same without the parameters, which are brought when they are needed: by ParametersAs
// (precision.h) to be measured, by ZeRO to be trained.
void move_state_to_device(Model& model, c10::Device device);

// Returns VALUES with every tensor on DEVICE: for a GPU from pinned memory on the current stream,
// so that the caller does not wait. Passes on tensors that are already there as they are.
[[nodiscard]] std::vector<IValue> on_device(std::vector<IValue> values, c10::Device device);

// Returns true if a branch, a loop or a call of the module may compute something in one step that
// it does not compute in another.
[[nodiscard]] bool has_control_flow(const LoweredGraph& lowered);

}  // namespace dslaunch::graph
