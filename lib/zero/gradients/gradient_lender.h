// The lender learns which allocation during a backward pass becomes which parameter's gradient.
// From then on it gives that allocation the gradient's place in the bucket, so that nothing needs
// to be copied. It is called by LibTorch's allocator (runtime/memory/lending_allocator.h), and
// owned by the GradientCollector. Thread: the compute lane only.
//
// An allocation is identified by its position. This consists of the number of nodes between the
// running autograd node and the parameter's AccumulateGrad, and of the index of the allocation
// within the running node. The running node's result must go to that AccumulateGrad and nowhere
// else. Memory is lent only after two backward passes in a row found the same position. Control
// flow, other shapes elsewhere and other segments do not matter, since the lender looks up each
// time where the running node's result goes.
//
// The results are correct whatever autograd does with the memory:
// 1. A place is lent while its slice is open, that is, claimed and without any gradient in this
//    generation: nothing in it can be lost. It is lent once in a backward pass.
// 2. The gradient arrives in its place with the shape and strides of the slice: nothing is left to
//    do. If a tensor besides autograd's and ours shares the storage, the storage is first moved to
//    memory of its own, so that later changes of the slice and of that tensor stay separate.
// 3. The gradient is in its place with another shape or strides (a view): its storage is moved out,
//    then the gradient is copied.
// 4. The gradient is elsewhere (AccumulateGrad cloned it, or another tensor took the lent block):
//    it is copied at once if the lent block was freed already, else at the segment's end. Lent
//    memory is written only by the tensor that it was lent to.
// 5. The gradient never arrives (undefined, or the parameter is unused): the slice stays open, and
//    complete() zeroes it.
// 6. The gradient is in another parameter's place: its storage is moved out.
// 7. A lent block outlives the backward pass: only gradients of the segment's inputs can, and the
//    segment runner moves these out (keep_in_own_memory). The collector checks that no memory is
//    still lent.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/memory/lending_allocator.h"

namespace torch::autograd {
struct Node;
}

namespace dslaunch::zero {

// Lends the bucket's memory to autograd; see the top of this file.
class GradientLender final : public runtime::MemoryLender {
  public:
    // The place in which a gradient arrives.
    enum class Arrival {
        kInPlace,    // the gradient is in its slice
        kElsewhere,  // the gradient must be copied into the slice
        kOccupied,   // must be copied after end_backward(): another tensor uses the memory
    };

    // Adds the next slice: VIEW is the place of the gradient of PARAMETER.
    void add_slice(const at::Tensor& parameter, const at::Tensor& view);

    // open() allows the slice to be lent from now on; close() forbids it.
    void open(size_t slice) { slices_[slice].open = true; }
    void close(size_t slice) { slices_[slice].open = false; }

    [[nodiscard]] void* lend(size_t bytes) override;
    void note(const void* memory) override;

    // Takes GRADIENT, which autograd passes to the hook of the slice's parameter, and returns
    // whether it must be copied into the slice.
    [[nodiscard]] Arrival arrive(size_t slice, const at::Tensor& gradient);
    // Ends a backward pass. REQUIRES: all tensors that outlive it were moved to memory of their
    // own.
    void end_backward();
    // Returns true if the slice's memory is lent and a tensor still uses it.
    [[nodiscard]] bool is_out(size_t slice) const {
        return runtime::is_lent(slices_[slice].memory);
    }

    // Returns the bytes of all gradients so far that were computed in their slices.
    [[nodiscard]] int64_t lent_bytes() const { return lent_bytes_; }

  private:
    struct Position {
        int hops = 0;     // nodes between the allocating node and AccumulateGrad
        int ordinal = 0;  // index of the allocation in its node
        bool operator==(const Position&) const = default;
    };
    struct Slice {
        at::Tensor view;
        void* memory = nullptr;
        size_t bytes = 0;
        bool open = false;
        bool lent = false;  // true if lent in this backward pass
        Position learnt;
        int agreements = 0;  // backward passes in a row with the position `learnt`
    };
    struct Target {  // a node that leads to a slice
        int64_t node = 0;
        size_t slice = 0;
        int hops = 0;
    };
    struct Allocation {
        const void* memory = nullptr;
        int64_t node = 0;
        int ordinal = 0;
    };
    void enter(torch::autograd::Node& node);
    void learn(Slice& slice, size_t index, const at::Tensor& gradient);
    [[nodiscard]] bool find_position(size_t slice, const void* memory, Position& position) const;

    std::vector<Slice> slices_;
    std::unordered_map<const c10::TensorImpl*, size_t> slice_of_;
    // The members below are valid during one backward pass.
    const torch::autograd::Node* node_ = nullptr;  // the last node that allocated; only compared
    int64_t node_index_ = 0;                       // counts nodes; 0: no node is running
    int64_t node_count_ = 0;
    int ordinal_ = 0;              // index of the node's next allocation
    size_t first_target_ = 0;      // the running node's first entry in targets_
    std::vector<Target> targets_;  // in the order of nodes
    std::vector<Allocation> allocations_;
    std::vector<size_t> lent_;
    int64_t lent_bytes_ = 0;
};

}  // namespace dslaunch::zero
