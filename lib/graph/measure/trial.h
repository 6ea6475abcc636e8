// Runs the backward of one segment in a trial pass, and restores what forward writes. Used by
// measure.h and segment_times.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/segment/segmented_model.h"

namespace dslaunch::graph {

// Returns the tensors in INPUTS that need gradients, each once.
[[nodiscard]] std::vector<at::Tensor> leaves_in(const std::vector<IValue>& inputs);

// One backward of a segment, for measuring its memory: kernels allocate as in a run, but the values
// of the gradients have no meaning.
struct TrialBackward {
    const Model& model;
    std::span<const int> parameters;  // parameters that the segment reads
    bool is_last = false;             // true: the segment ends in the loss
    const std::vector<IValue>& inputs;
    // If set, the backward runs in two halves, and this is called between them with the bytes of
    // the inputs' gradients.
    std::function<void(Bytes gradients)> between;

    // Runs the backward of BOUNDARY, the segment's output, with zeros as the gradients of its
    // leaves. Frees the gradient of a parameter as soon as it is complete, as in a run, but keeps
    // the inputs' gradients until the end.
    void run(Boundary boundary) const;
};

// A scope that restores at its end what a model's forward writes: the buffers of BatchNorm and
// similar layers, and parameters that its graph writes in place.
class KeptBuffers {
  public:
    // MODEL must outlive this. LOWERED is its graph.
    KeptBuffers(const Model& model, const LoweredGraph& lowered) {
        for (const ModelBuffer& buffer : model.buffers()) keep(buffer.tensor);
        for (const WriteInPlace& write : lowered.in_place)
            keep(model.parameters()[write.parameter].tensor.detach());
    }
    KeptBuffers(const KeptBuffers&) = delete;
    KeptBuffers& operator=(const KeptBuffers&) = delete;
    ~KeptBuffers() {
        const at::NoGradGuard no_grad;
        for (size_t i = 0; i < before_.size(); ++i) kept_[i].copy_(before_[i]);
    }

  private:
    void keep(const at::Tensor& tensor) {
        kept_.push_back(tensor);
        before_.push_back(tensor.detach().clone());
    }

    std::vector<at::Tensor> kept_;
    std::vector<at::Tensor> before_;
};

}  // namespace dslaunch::graph
