// The arguments of kernels: raw pointers and fp32 constants. This file has only plain types,
// because processors and GPUs share it (element/element_rules.h).
#pragma once

#include <cstdint>

namespace dslaunch::kernels {

// The types of numbers that kernels read and write.
enum class NumberKind : uint8_t { kFp32, kBf16, kFp16 };

// Arrays to be summed in order: `fp32`, or `half` if `kind` is a 16-bit type.
struct Sources {
    const float* const* fp32;
    const uint16_t* const* half;
    int64_t source_count;
    NumberKind kind;
};

// The arrays that an update reads and writes. An array that it does not use is null. Elements are
// counted from the start of each array.
struct UpdateArrays {
    Sources gradients;
    float gradient_scale;
    float l2_decay;                 // 0: no L2 decay
    const float* decay_parameters;  // read if l2_decay is not 0
    float* parameters;              // null: only the states are updated
    float* first;                   // the rule's states
    float* second;
    float* third;
    uint16_t* half;        // a 16-bit copy of the parameters; null: none
    NumberKind half_kind;  // the copy's dtype
    bool streams;          // the copy is written past the caches
};

// Elements [begin, begin + numel) of every array of an update.
struct ElementRange {
    int64_t begin;
    int64_t numel;
};

// The forms of Adam's rule (AdamStep).
enum class AdamForm {
    kUsual,
    kFrozen,    // the variance is only read
    kLargest,   // the third state is the largest variance so far, whose root divides
    kEpsInside  // eps is added to the variance, not to its root
};

// The constants of an Adam update, computed from AdamStep.
struct AdamConstants {
    float parameter_keep;  // 1 - lr * decoupled decay
    float beta1_rest;      // 1 - beta1
    float beta2;
    float beta2_rest;  // 1 - beta2
    float correction2_sqrt;
    float eps;
    float step_size;  // lr / bias correction 1
    AdamForm form;
};

// The numbers of AdagradStep; lr includes the decay.
struct AdagradConstants {
    float eps;
    float lr;
};

// The numbers of LionStep.
struct LionConstants {
    float parameter_keep;  // 1 - lr * decoupled decay
    float beta1;
    float beta1_rest;  // 1 - beta1
    float beta2;
    float beta2_rest;  // 1 - beta2
    float lr;
};

// The numbers of SgdStep.
struct SgdConstants {
    float momentum;
    float damping_rest;  // 1 - dampening
    float lr;
    bool nesterov;
    bool first_step;
};

// The arrays for averaging moves. A move is the change of the parameters in the steps that a host
// has made without the other hosts. The arrays contain one rank's part, and each of them has NUMEL
// elements.
struct LocalMoves {
    int64_t numel = 0;
    float* parameters = nullptr;      // may be null in take_moves
    float* meeting = nullptr;         // the parameters at the hosts' last meeting
    float* momentum = nullptr;        // take_moves sets it
    const float* variance = nullptr;  // 0: the element has never had a gradient, and does not move
    float eps = 0;
    float decay = 0;  // decoupled weight decay, which also moved parameters; for take_moves
};

// The arrays for a comparison of 1-bit LAMB's frozen variance with an up-to-date variance. Every
// array has NUMEL elements.
struct FreshVariance {
    int64_t numel = 0;
    const float* before = nullptr;    // the momentum after the previous update
    const float* momentum = nullptr;  // the momentum after this update
    const float* variance = nullptr;  // 0: the element has never had a gradient, and has no
                                      // momentum
    float* fresh = nullptr;
    double beta1 = 0;
    double beta2 = 0;
    float eps = 0;
};

}  // namespace dslaunch::kernels
