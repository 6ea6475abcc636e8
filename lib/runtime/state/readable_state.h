// The interface between evaluation and ZeRO: it lets a forward pass outside of a step read
// parameters that may be sharded. Implemented in lib/zero.
#pragma once

#include <span>

namespace dslaunch::runtime {

// Parameters that can be read outside of a step.
class ReadableState {
  public:
    virtual ~ReadableState() = default;

    // Makes PARAMETERS (indices into the model's parameters) readable through their tensors until
    // let_go(). Every rank calls hold(), outside of a step, but only ranks that pass KEEP = true
    // can read afterwards. REQUIRES: let_go() was called after an earlier hold().
    virtual void hold(std::span<const int> parameters, bool keep) = 0;
    virtual void let_go() = 0;
    // Returns true if parameters are whole only while they are held. The same on all ranks.
    [[nodiscard]] virtual bool is_sharded() const = 0;
};

}  // namespace dslaunch::runtime
