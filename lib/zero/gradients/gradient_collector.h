// The collector puts the gradients that autograd computes into the bucket slices. Autograd computes
// most gradients directly in a slice, because the lender gives it the slice's memory. A hook on
// every trainable parameter receives the complete gradient, copies it into the slice unless it is
// there already, and frees it. Thread: the compute lane only.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "graph/archive/model.h"
#include "plan/layout/flat_layout.h"
#include "zero/gradients/gradient_lender.h"

namespace dslaunch::zero {

// Collects gradients; see the top of this file.
class GradientCollector {
  public:
    // VIEWS[i] is the place in the bucket where the gradient of the trained slice layout.slices[i]
    // is summed. It has the shape and strides of the parameter. REQUIRES: the views are aligned to
    // 64 bytes if the lender is used.
    GradientCollector(const graph::Model& model, const plan::FlatLayout& layout,
                      std::vector<at::Tensor> views);
    GradientCollector(const GradientCollector&) = delete;
    GradientCollector& operator=(const GradientCollector&) = delete;
    ~GradientCollector();

    // Returns the lender for the backward pass of a segment: a LendingScope takes memory from it.
    // After the scope, call end_segment(). Without a LendingScope every gradient is copied.
    [[nodiscard]] runtime::MemoryLender& lender() { return lender_; }

    // Begins a backward pass of MICRO_STEP. If several parts of a stage use a parameter, its
    // gradients are summed outside of the slice for each micro step, because the backward passes of
    // several micro steps interleave.
    void begin_backward(int micro_step) { micro_step_ = micro_step; }
    // Begins a new generation of BUCKET, that is, a new sum of gradients: the next gradient of each
    // slice overwrites the slice instead of being added.
    void claim(const plan::Bucket& bucket);
    // Ends the backward pass of SEGMENT in one micro step. If several segments use a parameter,
    // adds the sum of its gradients in this micro step to the slice. In the first micro step of a
    // generation, these gradients are summed in the slice itself. In later micro steps, they are
    // summed in other memory, because summing in the slice would change the order of the sums.
    // REQUIRES: no gradient that SEGMENT gives to other segments is in lent memory.
    void end_segment(int segment);
    // Completes the generation of BUCKET: sets slices that got no gradient to zero. Sets USED[i] to
    // 1 if slice first_slice + i got a gradient, else to 0. REQUIRES: used.size() == end_slice -
    // first_slice.
    void complete(const plan::Bucket& bucket, std::span<float> used);
    // Returns true if SLICE has got a gradient in this generation.
    [[nodiscard]] bool has_gradient(int slice) const { return !slices_[slice].fresh; }

    // Returns the bytes of all gradients so far that were computed in their slices. copied_bytes()
    // returns the bytes of all gradients that were copied or added.
    [[nodiscard]] int64_t lent_bytes() const { return lender_.lent_bytes(); }
    [[nodiscard]] int64_t copied_bytes() const { return copied_bytes_; }

  private:
    struct Slice {
        at::Tensor view;
        // The sum of the parameter's gradients in this micro step, if several segments use the
        // parameter. Otherwise the gradient that waits for the end of the segment, because the
        // slice's memory is lent.
        at::Tensor scratch;
        bool shared_by_segments = false;
        bool over_parts = false;
        std::map<int, at::Tensor> waiting = {};  // by micro step, if over_parts
        bool fresh = true;      // true if nothing has been written in this generation
        bool in_place = false;  // true if a gradient may be added to the slice at once
    };
    class Hook;
    void receive(size_t slice, at::Tensor gradient);
    [[nodiscard]] static bool adds_at_once(const Slice& slice, const at::Tensor& gradient);
    void wait_for_turn(Slice& slice, at::Tensor gradient);
    void add(size_t slice, const at::Tensor& gradient);

    const graph::Model& model_;
    const plan::FlatLayout& layout_;
    std::vector<Slice> slices_;
    GradientLender lender_;
    int64_t copied_bytes_ = 0;
    int micro_step_ = 0;  // micro step of the current backward pass
};

}  // namespace dslaunch::zero
