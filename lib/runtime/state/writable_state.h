// The seam between ZeRO and what forward writes before it reads it: whole parameters in, their new
// values out, stored by their owners. Implemented in lib/zero.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/check.h"

namespace at {
class Tensor;
}  // namespace at

namespace dslaunch::runtime {

class WritableState {
  public:
    virtual ~WritableState() = default;

    // Gives USE the parameters READ, by index, as the last step left them: copies with their own
    // shapes, in fp32 where training keeps them so. Sets WRITTEN and their master copies to the
    // values that USE returns, on all ranks; of several hosts, the first one's values count.
    // Every rank calls it, between steps. Blocks.
    using NewValues = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& read)>;
    virtual void rewrite(std::span<const int> read, std::span<const int> written,
                         const NewValues& use) {
        static_cast<void>(use);
        DSL_CHECK(read.empty() && written.empty(), "a state that is only read is written");
    }
};

}  // namespace dslaunch::runtime
