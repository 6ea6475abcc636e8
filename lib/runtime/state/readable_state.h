// The interface between evaluation and ZeRO: it lets a forward pass outside of a step read
// parameters that may be sharded. Implemented in lib/zero.
#pragma once

#include <span>

namespace dslaunch::runtime {

// Parameters that can be read outside of a step.
class ReadableState {
  public:
    virtual ~ReadableState() = default;

    // hold() makes PARAMETERS of the model, given by index, readable through their tensors until
    // let_go(), on ranks that pass KEEP. Every rank calls it, outside of a step. Only one hold at a
    // time.
    virtual void hold(std::span<const int> parameters, bool keep) = 0;
    virtual void let_go() = 0;
    // Returns true if parameters are whole only while they are held.
    [[nodiscard]] virtual bool is_sharded() const = 0;
};

}  // namespace dslaunch::runtime
