// What the ranks of a tensor group do together in the middle of a graph: sums, maxima,
// concatenations and exchanges of activations. A thread that runs such a graph holds a
// TensorGroupScope; the operators of tensor_operators.h call its group. A seam: thread_group.h is
// the group of ranks as threads, runtime/compute/tensor_collectives.h that of processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::graph {

class TensorGroup {
  public:
    virtual ~TensorGroup() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;

    // All of them are called by every rank, in one order, with tensors of one shape and dtype, and
    // block until all ranks have come. SITE is the number of the collective in the graph: ranks
    // that meet at different ones throw Error{kDiverged}, and Error{kPeerLost} is thrown when a
    // rank is lost. Forward and backward of one micro batch never overlap on a rank, so one thread
    // at a time calls.

    // The sum over ranks, in rank order and in fp32 where MINE has 16 bits: the same bits on every
    // rank. MINE is left as it is.
    [[nodiscard]] virtual at::Tensor sum(const at::Tensor& mine, int64_t site) = 0;
    [[nodiscard]] virtual at::Tensor max(const at::Tensor& mine, int64_t site) = 0;
    // Every rank's tensor, by rank. Shapes may differ.
    [[nodiscard]] virtual std::vector<at::Tensor> gather(const at::Tensor& mine, int64_t site) = 0;
    // PARTS[r] goes to rank r; returns what each rank gave to this one, by rank. REQUIRES: all
    // parts of all ranks have one shape.
    [[nodiscard]] virtual std::vector<at::Tensor> exchange(const std::vector<at::Tensor>& parts,
                                                           int64_t site) = 0;
};

// While it lives the graphs that this thread runs speak to GROUP (null: to nobody), and the
// backward of what they made does for ever: GROUP must outlive both.
class TensorGroupScope {
  public:
    explicit TensorGroupScope(TensorGroup* group);
    TensorGroupScope(const TensorGroupScope&) = delete;
    TensorGroupScope& operator=(const TensorGroupScope&) = delete;
    ~TensorGroupScope();

  private:
    TensorGroup* before_;
};

}  // namespace dslaunch::graph
