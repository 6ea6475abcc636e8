// The arguments of kernels: raw pointers, and constants that are fp32 already. Processors and GPUs
// share this file (element/update_rules.h), so it has only plain types.
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

enum class NumberKind : uint8_t { kFp32, kBf16, kFp16 };

// Arrays to be summed, in order: `fp32` of them, or `half` where kind is a 16-bit one.
struct Sources {
    const float* const* fp32;
    const uint16_t* const* half;
    int64_t source_count;
    NumberKind kind;
};

// The arrays that an update reads and writes; null where there is none. Elements are counted from
// the arrays' starts.
struct UpdateArrays {
    Sources gradients;
    float gradient_scale;
    float l2_decay;                 // 0: none
    const float* decay_parameters;  // read with l2_decay
    float* parameters;              // null: only the states move
    float* first;                   // the rule's states
    float* second;
    uint16_t* half;        // a copy of the parameters that follows them; null: none
    NumberKind half_kind;  // the copy's dtype
    bool streams;          // it is written past the caches
};

struct ElementRange {
    int64_t begin;
    int64_t numel;
};

struct AdamConstants {
    float parameter_keep;  // 1 - lr * decoupled decay
    float beta1_rest;      // 1 - beta1
    float beta2;
    float beta2_rest;  // 1 - beta2
    float correction2_sqrt;
    float eps;
    float step_size;  // lr / bias correction 1
    bool frozen;      // the variance is only read
};

struct AdagradConstants {
    float eps;
    float lr;
};

struct LionConstants {
    float parameter_keep;  // 1 - lr * decoupled decay
    float beta1;
    float beta1_rest;  // 1 - beta1
    float beta2;
    float beta2_rest;  // 1 - beta2
    float lr;
};

struct SgdConstants {
    float momentum;
    float damping_rest;  // 1 - dampening
    float lr;
    bool nesterov;
    bool first_step;
};

// A rank's part of the arrays by which hosts that moved on their own come together again. All have
// NUMEL elements.
struct LocalMoves {
    int64_t numel = 0;
    float* parameters = nullptr;      // may be null in take_moves
    float* meeting = nullptr;         // the parameters when hosts met last
    float* momentum = nullptr;        // take_moves sets it
    const float* variance = nullptr;  // 0: the element has never had a gradient, and does not move
    float eps = 0;
    float decay = 0;  // take_moves: decoupled weight decay, which moved the parameters too
};

// The arrays by which 1-bit LAMB compares its frozen variance with the variance of now. All have
// NUMEL elements.
struct FreshVariance {
    int64_t numel = 0;
    const float* before = nullptr;    // the momentum of the update before
    const float* momentum = nullptr;  // the next one
    const float* variance = nullptr;  // 0: the element has never had a gradient, and has no
                                      // momentum
    float* fresh = nullptr;
    double beta1 = 0;
    double beta2 = 0;
    float eps = 0;
};

}  // namespace dslaunch::kernels
