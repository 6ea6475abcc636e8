// One backward of a segment for its use of memory: kernels allocate as in a run, the values of
// gradients have no meaning. Used by measure.h.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "graph/segment/segment.h"

namespace dslaunch::graph {

struct TrialBackward {
    const Model& model;
    std::span<const int> parameters;  // parameters that the segment reads
    bool last = false;                // true: the segment ends in the loss
    const std::vector<c10::IValue>& inputs;
    // Not empty: the backward runs in two halves, and this is called between them, with the bytes
    // of the inputs' gradients.
    std::function<void(Bytes gradients)> between;

    // Runs the backward of BOUNDARY, the segment's output, with gradients of zero for its leaves.
    // As in a run, the gradient of a parameter is freed as soon as it is complete; the inputs'
    // gradients are kept until the end.
    void run(Boundary boundary) const;
};

}  // namespace dslaunch::graph
