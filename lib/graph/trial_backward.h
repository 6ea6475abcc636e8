// One backward of a segment for the sake of its memory: kernels take what they take, gradients are
// of no value. Stands beside measure.h.
#pragma once

#include <span>

#include "graph/segment.h"

namespace dslaunch {

// Backward of BOUNDARY, which came out of a segment of MODEL that reads PARAMETERS, with gradients
// of zero for its leaves; LAST: it ends in the loss. As in a run, the gradient of a parameter is
// let go of as soon as it is complete; those of the segment's INPUTS are kept until the end.
void trial_backward(const Model& model, std::span<const int> parameters, Boundary boundary,
                    bool last, const std::vector<c10::IValue>& inputs);

}  // namespace dslaunch
