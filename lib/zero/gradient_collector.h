// Brings the gradients that autograd makes into the bucket slices: a hook on every trainable
// parameter moves its gradient there the moment it is complete, while it is still in the cache, and
// frees it. Used by the compute lane only.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "graph/model.h"
#include "plan/flat_layout.h"

namespace dslaunch {

class GradientCollector {
  public:
    // VIEWS[i] is where the gradient of layout.slices[i], a trained one, is summed: shaped and
    // strided as the parameter, in the bucket.
    GradientCollector(const Model& model, const FlatLayout& layout, std::vector<at::Tensor> views);
    GradientCollector(const GradientCollector&) = delete;
    GradientCollector& operator=(const GradientCollector&) = delete;
    ~GradientCollector();

    // A generation of BUCKET begins: the next gradient of each of its slices overwrites instead of
    // adding.
    void claim(const Bucket& bucket);
    // The backward of SEGMENT in one micro step is done: what parameters used in several segments
    // have summed up in that micro step is added to their slice. (Added in place over several micro
    // steps the order of sums would be another.)
    void end_segment(int segment);
    // The generation of BUCKET is complete: slices that got nothing are zeroed. USED[i]: whether
    // slice first_slice + i got a gradient. REQUIRES: used.size() == end_slice - first_slice.
    void complete(const Bucket& bucket, std::span<float> used);
    // Whether SLICE has got a gradient in this generation.
    [[nodiscard]] bool has_gradient(int slice) const {
        return !slices_[static_cast<size_t>(slice)].fresh;
    }

  private:
    struct Slice {
        at::Tensor view;
        at::Tensor scratch;  // this micro step's sum, for a parameter of several segments
        bool shared_by_segments = false;
        bool fresh = true;  // nothing has been written in this generation
    };
    class Hook;
    void receive(size_t slice, at::Tensor gradient);
    static void add(Slice& slice, const at::Tensor& gradient);

    const Model& model_;
    const FlatLayout& layout_;
    std::vector<Slice> slices_;
};

}  // namespace dslaunch
