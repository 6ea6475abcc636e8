// One backward of a segment for the sake of its memory: kernels take what they take, gradients are
// of no value. Stands beside measure.h.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "graph/segment/segment.h"

namespace dslaunch::graph {

struct TrialBackward {
    const Model& model;
    std::span<const int> parameters;  // that the segment reads
    bool last = false;                // it ends in the loss
    const std::vector<c10::IValue>& inputs;
    // Not empty: the backward runs in two halves, and this is called between them, with the bytes
    // of the inputs' gradients.
    std::function<void(Bytes gradients)> between;

    // Backward of BOUNDARY, which came out of the segment, with gradients of zero for its leaves.
    // As in a run, the gradient of a parameter is let go of as soon as it is complete; those of the
    // inputs are kept until the end.
    void run(Boundary boundary) const;
};

}  // namespace dslaunch::graph
