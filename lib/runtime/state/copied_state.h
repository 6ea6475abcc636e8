// The interface that shows replicated values to EqualCheck, which checks that all copies are equal.
// Implemented in lib/zero; called between steps.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/range.h"

namespace dslaunch::runtime {

// Some elements of a replicated tensor. Other ranks keep copies with the same bits.
struct CopiedValues {
    static constexpr int kWeights = -1;  // the weights as segments read them
    static constexpr int kMaster = -2;   // the fp32 copy of 16-bit weights
    static constexpr int kOfHost = -1;   // the whole tensor, one copy for all ranks of a host

    int parameter = -1;    // index into the model's parameters
    int state = kWeights;  // kWeights, kMaster, or the index of an optimizer state
    int part = 0;          // kOfHost, or the rank's part of its copy: parts with the same number
                           // are equal
    Range elements;        // in the order of the parameter's memory
    std::span<const std::byte> values;  // in the host's memory
};

// A state that has copies on several ranks.
class CopiedState {
  public:
    virtual ~CopiedState() = default;

    // Calls USE with all replicated values in this rank's memory. The values are valid until USE
    // returns. If ranks of a host share the weights, each of them visits only a part of the
    // weights. Leaves out all optimizer states if some of them are on disk or stored in fewer bits.
    // REQUIRES: settle() has returned. The default visits nothing.
    using UseCopied = std::function<void(const CopiedValues& values)>;
    virtual void visit_copied(const UseCopied& use) { static_cast<void>(use); }
};

}  // namespace dslaunch::runtime
