// The seam between evaluation and ZeRO: parameters that a forward outside of a step reads, which
// may lie in shards. Implemented in lib/zero.
#pragma once

#include <span>

namespace dslaunch::runtime {

class ReadableState {
  public:
    virtual ~ReadableState() = default;

    // Outside of a step, by every rank: whoever says KEEP may read these parameters of the model,
    // by index, through their tensors until let_go(). One hold at a time. By default they are
    // always there.
    virtual void hold(std::span<const int> parameters, bool keep) {
        static_cast<void>(parameters);
        static_cast<void>(keep);
    }
    virtual void let_go() {}
    // Whether parameters are whole only while they are held.
    [[nodiscard]] virtual bool is_sharded() const { return false; }
};

}  // namespace dslaunch::runtime
