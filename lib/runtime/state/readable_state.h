// The seam between evaluation and ZeRO: parameters that a forward outside of a step reads, which
// may lie in shards. Implemented in lib/zero.
#pragma once

#include <span>

namespace dslaunch::runtime {

class ReadableState {
  public:
    virtual ~ReadableState() = default;

    // Lets a rank that passes KEEP read these parameters of the model, given by index, through
    // their tensors until let_go(). Every rank calls it, outside of a step. One hold at a time.
    virtual void hold(std::span<const int> parameters, bool keep) = 0;
    virtual void let_go() = 0;
    // Returns true if parameters are whole only while they are held.
    [[nodiscard]] virtual bool is_sharded() const = 0;
};

}  // namespace dslaunch::runtime
