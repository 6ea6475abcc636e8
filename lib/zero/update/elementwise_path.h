// The update of elements that do not depend on each other, for example by Adam or SGD. Each run of
// elements may have a different optimizer. The path also finds the runs of every bucket, including
// the runs for whole tensors.
#pragma once

#include "zero/update/update_path.h"

namespace dslaunch::zero {

// Updates element by element; see the top of this file.
class ElementwisePath final : public UpdatePath {
  public:
    using UpdatePath::UpdatePath;

    void begin_bucket(int bucket) override;
    void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) override;
};

}  // namespace dslaunch::zero
