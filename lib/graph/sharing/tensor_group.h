// The collectives of a tensor group within a graph: sums, maxima, concatenations and exchanges of
// activations. A thread that runs such a graph holds a TensorGroupScope, and the operators of
// tensor_operators.h use its group. This is an interface: thread_group.h implements it for ranks
// that are threads, runtime/compute/tensor_collectives.h for ranks that are processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dslaunch::graph {

// The ranks that share the tensors of a graph, as one of these ranks sees them.
class TensorGroup {
  public:
    using Tensors = std::vector<at::Tensor>;

    virtual ~TensorGroup() = default;

    // Return this rank, from 0, and the number of ranks.
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;

    // Every rank calls the functions below in the same order, with tensors of the same shape and
    // dtype. They block until all ranks have called them. SITE is the number of the collective in
    // the graph: ranks that meet at different sites throw Error{kDiverged}. If a rank is lost, the
    // others throw Error{kPeerLost}. Forward and backward of one micro batch never overlap on a
    // rank, so only one thread at a time calls.

    // Returns the sum over ranks. Adds in rank order, and in fp32 if MINE has 16 bits, so every
    // rank gets the same bits. Does not change MINE.
    [[nodiscard]] virtual at::Tensor sum(const at::Tensor& mine, int64_t site) = 0;
    [[nodiscard]] virtual at::Tensor max(const at::Tensor& mine, int64_t site) = 0;
    // Returns every rank's tensor, by rank. This rank's entry may be MINE itself, so do not write
    // to the tensors. Shapes may differ.
    [[nodiscard]] virtual Tensors gather(const at::Tensor& mine, int64_t site) = 0;
    // Sends PARTS[r] to rank r; returns the parts that the ranks sent to this rank, by rank.
    // REQUIRES: all parts of all ranks have the same shape.
    [[nodiscard]] virtual Tensors exchange(const Tensors& parts, int64_t site) = 0;
    // Returns the tensor of the previous rank; rank 0 gets the last rank's tensor. REQUIRES: the
    // tensors of all ranks have the same shape.
    [[nodiscard]] virtual at::Tensor shift(const at::Tensor& mine, int64_t site) = 0;

  protected:
    // Returns the rank whose tensor shift() returns.
    [[nodiscard]] int rank_before() const { return (rank() + size() - 1) % size(); }
};

// A scope in which the graphs that this thread runs use GROUP (null: none). Their backward uses
// GROUP too, even after the scope, so GROUP must outlive both.
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
