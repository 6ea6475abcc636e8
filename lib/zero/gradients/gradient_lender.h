// The lender learns which allocation of a backward becomes which parameter's gradient. It then
// gives that allocation the gradient's place in the bucket, so that nothing is left to copy. It
// stands between LibTorch's allocator (runtime/memory/lending_allocator.h) and the
// GradientCollector that owns it. Thread: the compute lane only.
//
// A position says: the autograd node at work leads to the parameter's AccumulateGrad over so many
// nodes, and to nothing else beyond the edge, and this is that node's n-th allocation. Two
// backwards in a row must agree before anything is lent. Control flow, other shapes elsewhere and
// other segments do not matter, since the node at work is asked each time for where its result
// goes.
//
// No result can be wrong, whatever autograd does with the memory:
// 1. A place is lent while its slice is open, that is, claimed and without any gradient in this
//    generation: there is nothing to lose in it. It is lent once in a backward.
// 2. The gradient that arrives lies in its place, shaped as the slice: done. If a tensor beside
//    autograd's and ours shares the storage, that tensor is first moved to memory of its own, so
//    that no later in-place operation reaches the slice, and nobody sees what the bucket becomes.
// 3. It lies there otherwise shaped or strided (a view): the storage is moved out, then copied.
// 4. It lies elsewhere (AccumulateGrad cloned it, or the block became something else): copied, now
//    if the loan is back (the block was freed early), else at the segment's end. A loan that is out
//    is written by nobody but its holder.
// 5. It never arrives (undefined, unused): the slice stays open, and complete() zeroes it.
// 6. It lies in another parameter's place: the storage is moved out.
// 7. A lent block outlives the backward: only gradients of the segment's inputs do, and the
//    segment runner moves these out (keep_in_own_memory). The collector checks that no loan is out.
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

class GradientLender final : public runtime::MemoryLender {
  public:
    enum class Arrival {
        kInPlace,    // the gradient is in its slice
        kElsewhere,  // the gradient must be copied into the slice
        kOccupied,   // the same, but not before end_backward: another tensor holds the memory
    };

    // Adds the next slice: the gradient of PARAMETER belongs into VIEW.
    void add_slice(const at::Tensor& parameter, const at::Tensor& view);

    // open() and close() say whether the slice may be lent from now on.
    void open(size_t slice) { slices_[slice].open = true; }
    void close(size_t slice) { slices_[slice].open = false; }

    [[nodiscard]] void* lend(size_t bytes) override;
    void note(const void* memory) override;

    // GRADIENT is the slice's, as autograd gives it to the hook of the parameter.
    [[nodiscard]] Arrival arrive(size_t slice, const at::Tensor& gradient);
    // Ends a backward. REQUIRES: everything that outlives it was moved to its own memory.
    void end_backward();
    // True if some tensor lies in the slice.
    [[nodiscard]] bool is_out(size_t slice) const {
        return runtime::is_lent(slices_[slice].memory);
    }

    // Returns the bytes of all gradients so far that were born in their slice.
    [[nodiscard]] int64_t lent_bytes() const { return lent_bytes_; }

  private:
    struct Position {
        int hops = 0;     // nodes between the one that allocates and AccumulateGrad
        int ordinal = 0;  // index of the allocation among that node's
        bool operator==(const Position&) const = default;
    };
    struct Slice {
        at::Tensor view;
        void* memory = nullptr;
        size_t bytes = 0;
        bool open = false;
        bool lent = false;  // true if lent in this backward
        Position learnt;
        int agreements = 0;  // backwards in a row that had `learnt`
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
    // The members below belong to one backward.
    const torch::autograd::Node* node_ = nullptr;  // the last node that allocated; only compared
    int64_t node_index_ = 0;                       // counts nodes; 0: no node is at work
    int64_t node_count_ = 0;
    int ordinal_ = 0;              // index of the node's next allocation
    size_t first_target_ = 0;      // first entry of the node at work in targets_
    std::vector<Target> targets_;  // in the order of nodes
    std::vector<Allocation> allocations_;
    std::vector<size_t> lent_;
    int64_t lent_bytes_ = 0;
};

}  // namespace dslaunch::zero
