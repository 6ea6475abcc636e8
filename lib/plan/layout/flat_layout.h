// The place of each parameter in the flat buffers (parameters, gradients, optimizer states), and
// the buckets in which gradients are reduced and parameters gathered. Pure; all ranks get the same
// result. Slices start at cache lines so that ranks never share one.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/range.h"
#include "plan/model/model_info.h"

namespace dslaunch::plan {

inline constexpr int64_t kSliceAlignmentNumel = 16;  // 64 bytes of fp32

struct ParameterSlice {
    int parameter = -1;        // index into ModelInfo::parameters
    int64_t offset_numel = 0;  // in the flat buffer, a multiple of kSliceAlignmentNumel
    int64_t numel = 0;
    int first_segment = -1;  // first and last segment that read the parameter and, unless it is
                             // frozen, have a backward
    int last_segment = -1;
    // True if several parts of a stage train it, with other micro steps' backwards in between.
    bool over_parts = false;
    bool exact_gradient = false;  // ParameterInfo::exact_gradient
};

enum class BucketKind : uint8_t {
    kTrained,
    kPersistent,  // trained, but kept whole at stage 3: parameters too small to be worth a gather
    kTied,        // trained, one parameter that other stages of a pipeline train too
    kFrozen,  // no gradient, no optimizer state: not trainable, or read only by segments without
              // a backward
};

// A contiguous range of the flat buffer, reduced as one: complete when the backward of
// `ready_segment` is done.
struct Bucket {
    int64_t offset_numel = 0;
    int64_t numel = 0;      // padding included
    int ready_segment = 0;  // earliest segment that adds to the bucket, whose backward runs last
    int first_slice = 0;    // slices [first_slice, end_slice)
    int end_slice = 0;
    BucketKind kind = BucketKind::kTrained;
};

// Returns the elements of the flags, one per slice, after the gradients of a bucket. A flag is 1 if
// the rank had a gradient. Flags are summed with the gradients, so all ranks know the parameters
// that no rank used.
[[nodiscard]] inline int64_t flag_numel(const Bucket& bucket) {
    return round_up(bucket.end_slice - bucket.first_slice, kSliceAlignmentNumel);
}

// Buckets come in the order of their kinds, slices in the order of buckets.
struct FlatLayout {
    std::vector<ParameterSlice> slices;  // within a kind by first_segment, then by parameter
    std::vector<Bucket> buckets;         // by offset
    int64_t numel = 0;                   // padding included
    int64_t trained_numel = 0;           // elements of the buckets that are not frozen, a prefix
    int trained_buckets = 0;             // buckets that are not frozen, a prefix
    int trained_slices = 0;              // slices that are not frozen, a prefix
    int64_t block_numel = int64_t{16} * 1024;  // see FlatLayoutOptions

    // Returns the slice of a model parameter; -1: unused, or frozen if frozen ones are left out.
    [[nodiscard]] int slice_of(int parameter) const;
    // Returns the bucket of a slice.
    [[nodiscard]] int bucket_of(int slice) const;
    std::vector<int> slice_of_parameter;
};

struct FlatLayoutOptions {
    int64_t bucket_numel_max = 500'000'000;  // a single larger parameter still gets a bucket of its
                                             // own
    int64_t bucket_numel_min = 1 << 20;      // smaller neighbours are merged
    bool frozen = false;                     // true: frozen parameters have slices too
    int64_t persistent_numel_max = 0;        // trained parameters of at most this many elements are
                                             // persistent; 0: none
    // Shards are cut, and the gradient norm is summed, in blocks of this many elements that start
    // again at each parameter, so that the norm is the same however parameters are sharded.
    int64_t block_numel = int64_t{16} * 1024;
    // The largest number of elements of all persistent parameters; the first in the model's order
    // are taken.
    int64_t persistent_total_numel_max = std::numeric_limits<int64_t>::max();
    std::vector<int> tied = {};  // parameters that other stages of the pipeline train too
    // The first segments of a stage's parts, without the first part: no bucket lies in two parts.
    std::vector<int> part_begins = {};
};

// Returns the layout of the parameters that some segment reads, without the others. Any segment may
// read an opaque parameter (one read through the module itself), so the caller lists it in every
// segment's parameters.
[[nodiscard]] FlatLayout make_flat_layout(const ModelInfo& model, const FlatLayoutOptions& options);

// Returns the ranges of a bucket and its flags whose gradients travel between hosts as they are
// while others do in 16 bits, in order and apart: slices with exact gradients, and the flags.
[[nodiscard]] std::vector<Range> exact_ranges(const FlatLayout& layout, int bucket);

// The blocks of a bucket, in order; padding is in no block.
struct LayoutBlock {
    int bucket = 0;
    int slice = 0;
    int64_t begin = 0;  // within the bucket
    int64_t numel = 0;
};
[[nodiscard]] std::vector<LayoutBlock> blocks_of(const FlatLayout& layout, int bucket);

}  // namespace dslaunch::plan
