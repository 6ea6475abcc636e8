// Moves a model, its graph and its batches to the rank's device. An archive is loaded onto the CPU,
// and a tracer writes its own device into the graph, but a rank needs parameters, buffers,
// attributes, constants and arguments on its own device. lower.h uses rewrite_devices(); the code
// that builds a rank uses the rest. No shared state.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "graph/archive/model.h"

namespace dslaunch::graph {

struct LoweredGraph;

// Moves the constants in BLOCK to DEVICE: device constants become DEVICE, and tensors are copied to
// it. Tensors of one element are copied too, as by torch.jit.load's map_location. Throws c10::Error
// if the device has no memory left.
void rewrite_devices(Block& block, c10::Device device);

// Calls rewrite_devices() for all methods of MODULE and its submodules. Used for a module that is
// called directly, without being lowered. REQUIRES: no method has run yet.
void rewrite_methods(const Module& module, c10::Device device);

// Moves parameters, buffers and tensors in other attributes to DEVICE. Each of them stays the same
// tensor object, so ties are kept and the module uses the moved tensor. Constants in methods are
// not moved: graphs are rewritten when they are lowered. Does nothing if everything is on DEVICE
// already.
void move_to_device(Model& model, c10::Device device);

// Moves buffers and tensors in other attributes to DEVICE, but not the parameters. Parameters are
// moved when they are needed: by ParametersAs (parameters_as.h) for measuring, by ZeRO for
// training.
void move_state_to_device(Model& model, c10::Device device);

// Returns VALUES with every tensor on DEVICE. Copies to a GPU use pinned memory and the current
// stream, so that the caller does not wait. Tensors that are on DEVICE already are returned
// unchanged.
[[nodiscard]] std::vector<IValue> on_device(std::vector<IValue> values, c10::Device device);

// Returns true if a branch, a loop or a call of the module may compute different things in
// different steps.
[[nodiscard]] bool has_control_flow(const LoweredGraph& lowered);

}  // namespace dslaunch::graph
