// Brings the gradients that autograd makes into the bucket slices. Most are born there: the lender
// gives autograd the slice's memory. A hook on every trainable parameter takes its gradient the
// moment it is complete, copies it into the slice where it lies elsewhere, and frees it. Used by
// the compute lane only.
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
    // VIEWS[i] is where the gradient of layout.slices[i], a trained one, is summed: shaped and
    // strided as the parameter, in the bucket. REQUIRES: aligned to 64 bytes, where the lender is
    // used.
    GradientCollector(const graph::Model& model, const plan::FlatLayout& layout,
                      std::vector<at::Tensor> views);
    GradientCollector(const GradientCollector&) = delete;
    GradientCollector& operator=(const GradientCollector&) = delete;
    ~GradientCollector();

    // To be asked for memory in the backward of each segment (LendingScope), which end_segment must
    // follow. Without it every gradient is copied.
    [[nodiscard]] runtime::MemoryLender& lender() { return lender_; }

    // A backward of MICRO_STEP begins. What several parts of a stage have of a parameter is summed
    // up beside the slice for each micro step, for backwards of others come between theirs.
    void begin_backward(int micro_step) { micro_step_ = micro_step; }
    // A generation of BUCKET begins: the next gradient of each of its slices overwrites instead of
    // adding.
    void claim(const plan::Bucket& bucket);
    // The backward of SEGMENT in one micro step is done, and no gradient that it passes on lies in
    // lent memory: what parameters used in several segments
    // have summed up in that micro step is added to their slice. (Only the first micro step of a
    // generation adds them up in the slice itself: in later ones the order of sums would be
    // another.)
    void end_segment(int segment);
    // The generation of BUCKET is complete: slices that got nothing are zeroed. USED[i]: whether
    // slice first_slice + i got a gradient. REQUIRES: used.size() == end_slice - first_slice.
    void complete(const plan::Bucket& bucket, std::span<float> used);
    // Whether SLICE has got a gradient in this generation.
    [[nodiscard]] bool has_gradient(int slice) const { return !slices_[slice].fresh; }

    // How gradients came into their slices, in all: born there, or copied or added.
    [[nodiscard]] int64_t lent_bytes() const { return lender_.lent_bytes(); }
    [[nodiscard]] int64_t copied_bytes() const { return copied_bytes_; }

  private:
    struct Slice {
        at::Tensor view;
        at::Tensor scratch;  // this micro step's sum, for a parameter of several segments, or what
                             // waits for the slice's memory until the segment's end
        bool shared_by_segments = false;
        bool over_parts = false;
        std::map<int, at::Tensor> waiting = {};  // by micro step, where it is over parts
        bool fresh = true;                       // nothing has been written in this generation
        bool in_place = false;                   // what comes may be added to the slice at once
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
    int micro_step_ = 0;  // of the backward at hand
};

}  // namespace dslaunch::zero
