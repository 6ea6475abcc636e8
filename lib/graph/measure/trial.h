// Tools of a trial pass: bytes of the tensors that a thread makes, one backward of a segment, and a
// scope that restores what forward writes. Used by measure.h and segment_times.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/segment/segment.h"

namespace dslaunch::graph {

// Counts the bytes of the tensors that one thread makes on a kind of device: living ones now, and
// the most at any time. LibTorch reports allocations of the thread that made the meter, and of the
// threads of its backwards; memory that kernels take beside tensors (packed operands of products)
// is not counted.
class TensorMeter {
  public:
    explicit TensorMeter(c10::DeviceType device = c10::kCPU);
    TensorMeter(const TensorMeter&) = delete;
    TensorMeter& operator=(const TensorMeter&) = delete;
    ~TensorMeter();

    // Tensors of kLargeBlock (plan/model/model_info.h) and more are counted apart from the others.
    struct Counts {
        int64_t small_bytes = 0;
        int64_t large_bytes = 0;
    };
    // Returns the bytes of the tensors made since the meter that are still alive.
    [[nodiscard]] Counts live() const;
    // Returns the largest value of each count since the last restart_peak.
    [[nodiscard]] Counts peak() const;
    void restart_peak();

  private:
    class Report;
    std::shared_ptr<Report> report_;  // with LibTorch's state of this thread, while guard_ stands
    c10::DebugInfoGuard guard_;
};

// Returns the tensors in INPUTS that need gradients, each once.
[[nodiscard]] std::vector<at::Tensor> leaves_in(const std::vector<IValue>& inputs);

// One backward of a segment for its use of memory: kernels allocate as in a run, the values of
// gradients have no meaning.
struct TrialBackward {
    const Model& model;
    std::span<const int> parameters;  // parameters that the segment reads
    bool last = false;                // true: the segment ends in the loss
    const std::vector<IValue>& inputs;
    // Not empty: the backward runs in two halves, and this is called between them, with the bytes
    // of the inputs' gradients.
    std::function<void(Bytes gradients)> between;

    // Runs the backward of BOUNDARY, the segment's output, with gradients of zero for its leaves.
    // The gradient of a parameter is freed as soon as it is complete, as in a run; the inputs'
    // gradients are kept until the end.
    void run(Boundary boundary) const;
};

// A scope whose end restores what a model's forward writes: the buffers of BatchNorm and similar
// layers, and parameters that its graph writes in place.
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
