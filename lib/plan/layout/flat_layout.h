// The place of each parameter in the flat buffers (parameters, gradients, optimizer states), and
// the buckets in which gradients are reduced and parameters gathered. Pure; the result is the same
// on all ranks. Slices start at cache lines, so no two ranks write to the same line.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/range.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

inline constexpr int64_t kSliceAlignmentNumel = 16;  // 64 bytes of fp32

// The place of one parameter in the flat buffers.
struct ParameterSlice {
    int parameter = -1;        // index into ModelInfo::parameters
    int64_t offset_numel = 0;  // in the flat buffer, a multiple of kSliceAlignmentNumel
    int64_t numel = 0;
    int first_segment = -1;  // first and last segment that read the parameter and (unless it is
                             // frozen) have a backward
    int last_segment = -1;
    // True if several parts of a stage train the parameter. A micro step then adds to the gradient
    // in several backwards, and backwards of other micro steps may run between them.
    bool over_parts = false;
    bool exact_gradient = false;  // ParameterInfo::exact_gradient
};

// The treatment that all parameters of a bucket have in common.
enum class BucketKind : uint8_t {
    kTrained,
    kPersistent,  // trained, but kept whole at stage 3: too small to be worth a gather
    kTied,        // trained, a single parameter that other stages of a pipeline train too
    kFrozen,  // no gradient, no optimizer state: not trainable, or read only by segments without
              // a backward
};

// A contiguous range of the flat buffer that is reduced as a unit. Its gradients are complete when
// the backward of `ready_segment` is done.
struct Bucket {
    int64_t offset_numel = 0;
    int64_t numel = 0;      // padding included
    int ready_segment = 0;  // first segment that adds to the bucket: its backward runs last
    int first_slice = 0;    // slices [first_slice, end_slice)
    int end_slice = 0;
    BucketKind kind = BucketKind::kTrained;
};

// Returns the number of elements for the flags, which follow a bucket's gradients: one flag for
// each slice, then padding. A flag is 1 if the rank had a gradient for the slice. The flags are
// summed with the gradients, so all ranks know which parameters no rank used.
[[nodiscard]] inline int64_t flag_numel(const Bucket& bucket) {
    return round_up(bucket.end_slice - bucket.first_slice, kSliceAlignmentNumel);
}

// The buckets are sorted by kind, and the slices are in the order of their buckets.
struct FlatLayout {
    std::vector<ParameterSlice> slices;  // sorted by kind, first_segment, parameter
    std::vector<Bucket> buckets;         // by offset
    int64_t numel = 0;                   // padding included
    int64_t trained_numel = 0;           // elements of the buckets that are not frozen; these come
                                         // first
    int trained_buckets = 0;             // buckets that are not frozen; these come first
    int trained_slices = 0;              // slices that are not frozen; these come first
    int64_t block_numel = int64_t{16} * 1024;  // see FlatLayoutOptions

    // Returns the index of a parameter's slice. Returns -1 if no segment uses the parameter, if it
    // has its own type, or if it is frozen and frozen parameters are left out.
    [[nodiscard]] int slice_of(int parameter) const;
    // Returns the index of the bucket that contains a slice.
    [[nodiscard]] int bucket_of(int slice) const;
    std::vector<int> slice_of_parameter;
};

// The limits of buckets, and the parameters that get separate buckets.
struct FlatLayoutOptions {
    int64_t bucket_numel_max = 500'000'000;  // a parameter that is larger gets a separate bucket
    int64_t bucket_numel_min = 1 << 20;      // smaller neighbouring buckets are merged
    bool frozen = false;                     // true: frozen parameters have slices too
    int64_t persistent_numel_max = 0;        // trained parameters of at most this many elements are
                                             // persistent; 0: none
    // The number of elements in a block. Blocks start again at each parameter. Shards are cut only
    // between blocks, and the gradient norm is summed by blocks, so the norm is the same with every
    // way of sharding.
    int64_t block_numel = int64_t{16} * 1024;
    // The largest total number of elements of the persistent parameters. Parameters that come first
    // in the model are chosen first.
    int64_t persistent_total_numel_max = std::numeric_limits<int64_t>::max();
    std::vector<int> tied = {};  // parameters that other stages of the pipeline train too
    // The first segments of the parts of a stage, except for the first part. No bucket contains
    // segments of two parts.
    std::vector<int> part_begins = {};
};

// Returns the layout of the parameters that some segment reads; all other parameters are left out.
// If the model's code reads a parameter from its module (an opaque use), any segment may read the
// parameter. The caller then lists it in every segment's parameters.
[[nodiscard]] FlatLayout make_flat_layout(const ModelInfo& model, const FlatLayoutOptions& options);

// Returns the ranges of a bucket and its flags that hosts always send in full precision, even if
// they send all other values in 16 bits: the slices with exact gradients, and the flags. The ranges
// are in order and do not touch each other.
[[nodiscard]] std::vector<Range> exact_ranges(const FlatLayout& layout, int bucket);

// A part of a slice, within one shard. If the bucket is sent with 1 bit per element, the elements
// of a block share one scale.
struct LayoutBlock {
    int bucket = 0;
    int slice = 0;
    int64_t begin = 0;  // within the bucket
    int64_t numel = 0;
};
// Returns the blocks of a bucket, in order. Padding belongs to no block.
[[nodiscard]] std::vector<LayoutBlock> blocks_of(const FlatLayout& layout, int bucket);

}  // namespace dslaunch::plan
