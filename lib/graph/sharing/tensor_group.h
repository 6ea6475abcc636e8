// The collectives of a tensor group in the middle of a graph: sums, maxima, concatenations and
// exchanges of activations. A thread that runs such a graph holds a TensorGroupScope; the operators
// of tensor_operators.h call its group. An interface: thread_group.h is the group of ranks as
// threads, runtime/compute/tensor_collectives.h the group of processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::graph {

class TensorGroup {
  public:
    using Tensors = std::vector<at::Tensor>;

    virtual ~TensorGroup() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;

    // Every rank calls the functions below in one order, with tensors of one shape and dtype. They
    // block until all ranks have come. SITE is the number of the collective in the graph: ranks
    // that meet at different ones throw Error{kDiverged}, and Error{kPeerLost} is thrown when a
    // rank is lost. Forward and backward of one micro batch never overlap on a rank, so one thread
    // at a time calls.

    // Returns the sum over ranks, in rank order and in fp32 where MINE has 16 bits: the same bits
    // on every rank. MINE is not changed.
    [[nodiscard]] virtual at::Tensor sum(const at::Tensor& mine, int64_t site) = 0;
    [[nodiscard]] virtual at::Tensor max(const at::Tensor& mine, int64_t site) = 0;
    // Returns every rank's tensor, by rank. This rank's own may be MINE itself: do not write to
    // any. Shapes may differ.
    [[nodiscard]] virtual Tensors gather(const at::Tensor& mine, int64_t site) = 0;
    // Sends PARTS[r] to rank r; returns what each rank gave to this one, by rank. REQUIRES: all
    // parts of all ranks have one shape.
    [[nodiscard]] virtual Tensors exchange(const Tensors& parts, int64_t site) = 0;
    // Returns the tensor that the rank before this one gave, at rank 0 the last one. REQUIRES:
    // tensors of all ranks have one shape.
    [[nodiscard]] virtual at::Tensor shift(const at::Tensor& mine, int64_t site) = 0;

  protected:
    // Returns the rank whose tensor shift() returns.
    [[nodiscard]] int rank_before() const { return (rank() + size() - 1) % size(); }
};

// A scope in which the graphs that this thread runs use GROUP (null: none). Their backward uses
// GROUP too, also after the scope: GROUP must outlive both.
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
