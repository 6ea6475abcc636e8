// Where each trainable parameter lives in the flat buffers (parameters, gradients, optimizer
// states), and the buckets in which gradients are reduced. Pure; every rank computes the same.
// Slices start at cache lines so that ranks never share one.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/model_info.h"

namespace dslaunch {

inline constexpr int64_t kSliceAlignmentNumel = 16;  // 64 bytes of fp32

struct ParameterSlice {
    int parameter = -1;        // index into ModelInfo::parameters
    int64_t offset_numel = 0;  // in the flat buffer, a multiple of kSliceAlignmentNumel
    int64_t numel = 0;
    int first_segment = -1;  // first and last segment that read it
    int last_segment = -1;
};

// A contiguous range of the flat buffer, reduced as one: complete when the backward of
// `ready_segment` is done.
struct Bucket {
    int64_t offset_numel = 0;
    int64_t numel = 0;      // padding included
    int ready_segment = 0;  // the earliest segment that adds to it: the last whose backward runs
    int first_slice = 0;    // slices [first_slice, end_slice)
    int end_slice = 0;
};

struct FlatLayout {
    std::vector<ParameterSlice> slices;  // by first_segment, then by parameter
    std::vector<Bucket> buckets;         // by offset; the last is the first to be ready
    int64_t numel = 0;                   // padding included

    // The slice of a model parameter, -1: frozen or unused.
    [[nodiscard]] int slice_of(int parameter) const;
    std::vector<int> slice_of_parameter;
};

struct FlatLayoutOptions {
    int64_t bucket_numel_max = 500'000'000;  // a single larger parameter still gets a bucket of its
                                             // own
    int64_t bucket_numel_min = 1 << 20;      // smaller neighbours are merged
};

// Trainable parameters that some segment reads; the others are left out. With OPAQUE parameters
// (read through the module itself) a parameter may be read by every segment: the caller lists it in
// each segment's parameters.
[[nodiscard]] FlatLayout make_flat_layout(const ModelInfo& model, const FlatLayoutOptions& options);

}  // namespace dslaunch
