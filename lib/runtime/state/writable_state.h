// The interface between ZeRO and the code for models whose forward assigns values to parameters.
// That code reads whole parameters and gives new values, which the parameters' owners store.
// Implemented in lib/zero.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/check.h"

namespace at {
class Tensor;
}  // namespace at

namespace dslaunch::runtime {

// A state whose parameters can be given values outside of a step.
class WritableState {
  public:
    virtual ~WritableState() = default;

    // Calls USE with copies of the parameters READ, given by index, with their values after the
    // last step. The copies have the parameters' shapes, and are fp32 if training keeps them in
    // fp32. Then sets the parameters WRITTEN, and their master copies, to the values that USE
    // returned, on all ranks. With several hosts, the first host's values are used. Every rank
    // calls it, between steps. Blocks.
    using NewValues = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& read)>;
    virtual void rewrite(std::span<const int> read, std::span<const int> written,
                         const NewValues& use) {
        static_cast<void>(use);
        DSL_CHECK(read.empty() && written.empty(), "a read-only state cannot be written");
    }
};

}  // namespace dslaunch::runtime
