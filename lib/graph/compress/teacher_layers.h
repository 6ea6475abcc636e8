// layer_reduction: a model begins with layers of a larger model. Data path: set-up of a job ->
// [here] -> lower.h. One thread.
#pragma once

#include <string>
#include <vector>

#include "config/run/compression_config.h"
#include "graph/archive/model.h"

namespace dslaunch::graph {

// Gives layer I of MODEL the parameters of layer teacher_layers[I] of the model at TEACHER, and the
// modules in REDUCTION.others the parameters of the same modules there. MODEL's tensors read the
// teacher's file from then on. Throws Error{kConfig} if a layer or module does not exist, or if
// MODEL has more layers than REDUCTION names, and Error{kInput} if the teacher cannot be loaded or
// a parameter has different sizes.
void take_teacher_layers(Model& model, const config::LayerReduction& reduction,
                         const std::string& teacher);

// Throws Error{kConfig} naming other_module_name if MODEL has no parameters in one of MODULES.
void require_modules(const Model& model, const std::vector<std::string>& modules);

}  // namespace dslaunch::graph
