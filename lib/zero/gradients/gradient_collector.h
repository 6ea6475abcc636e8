// The collector brings the gradients that autograd makes into the bucket slices. Most are born
// there: the lender gives autograd the slice's memory. A hook on every trainable parameter takes
// its gradient the moment it is complete, copies it into the slice if it lies elsewhere, and frees
// it. Thread: the compute lane only.
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

class GradientCollector {
  public:
    // VIEWS[i], shaped and strided as the parameter, is the place in the bucket that sums the
    // gradient of layout.slices[i], a trained one. REQUIRES: the views are aligned to 64 bytes if
    // the lender is used.
    GradientCollector(const graph::Model& model, const plan::FlatLayout& layout,
                      std::vector<at::Tensor> views);
    GradientCollector(const GradientCollector&) = delete;
    GradientCollector& operator=(const GradientCollector&) = delete;
    ~GradientCollector();

    // Returns the lender, which is asked for memory in the backward of each segment (LendingScope);
    // end_segment must follow. Without it every gradient is copied.
    [[nodiscard]] runtime::MemoryLender& lender() { return lender_; }

    // Begins a backward of MICRO_STEP. Gradients of a parameter from several parts of a stage are
    // summed beside the slice for each micro step, since backwards of other micro steps come
    // between.
    void begin_backward(int micro_step) { micro_step_ = micro_step; }
    // Begins a generation of BUCKET: the next gradient of each slice overwrites instead of adding.
    void claim(const plan::Bucket& bucket);
    // Ends the backward of SEGMENT in one micro step; no gradient that it passes on lies in lent
    // memory. Adds the sum over that micro step, for a parameter used in several segments, to its
    // slice. (Only the first micro step of a generation sums in the slice itself. In later ones the
    // order of sums would change.)
    void end_segment(int segment);
    // Completes the generation of BUCKET: zeroes slices that got nothing. USED[i] is 1 if slice
    // first_slice + i got a gradient, else 0. REQUIRES: used.size() == end_slice - first_slice.
    void complete(const plan::Bucket& bucket, std::span<float> used);
    // True if SLICE has got a gradient in this generation.
    [[nodiscard]] bool has_gradient(int slice) const { return !slices_[slice].fresh; }

    // Returns the bytes of all gradients so far: born in their slices, or copied or added.
    [[nodiscard]] int64_t lent_bytes() const { return lender_.lent_bytes(); }
    [[nodiscard]] int64_t copied_bytes() const { return copied_bytes_; }

  private:
    struct Slice {
        at::Tensor view;
        // The micro step's sum for a parameter of several segments, or a gradient that waits for
        // the slice's memory until the segment's end.
        at::Tensor scratch;
        bool shared_by_segments = false;
        bool over_parts = false;
        std::map<int, at::Tensor> waiting = {};  // one per micro step, for a slice over several
                                                 // parts
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
    int micro_step_ = 0;  // micro step of the backward at hand
};

}  // namespace dslaunch::zero
