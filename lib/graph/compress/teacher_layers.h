// layer_reduction: a model begins with layers of a larger model. Data path: set-up of a job ->
// [here] -> lower.h. One thread.
#pragma once

#include <string>
#include <vector>

#include "config/run/compression_config.h"
#include "graph/archive/model.h"

namespace dslaunch::graph {

// Replaces parameters of MODEL by parameters of the model at TEACHER. Layer I takes the parameters
// of the teacher's layer teacher_layers[I]. Each module in REDUCTION.others takes the parameters of
// the teacher's module with the same name. MODEL's tensors read the teacher's file from then on.
// Throws Error{kConfig} if a layer or module does not exist, or if MODEL has more layers than
// REDUCTION names, and Error{kInput} if the teacher cannot be loaded or a parameter has different
// sizes.
void take_teacher_layers(Model& model, const config::LayerReduction& reduction,
                         const std::string& teacher);

// Throws Error{kConfig} if a module in MODULES has no parameters in MODEL. The message names the
// key other_module_name.
void require_modules(const Model& model, const std::vector<std::string>& modules);

}  // namespace dslaunch::graph
