// The update of elements that do not depend on each other, by their run's optimizer: Adam, SGD and
// the like. It also finds the runs of every bucket, for whole tensors too.
#pragma once

#include "zero/update/update_path.h"

namespace dslaunch::zero {

class ElementwisePath final : public UpdatePath {
  public:
    using UpdatePath::UpdatePath;

    void begin_bucket(int bucket) override;
    void update(const plan::Instruction& chunk, const ChunkView& view, bool writes) override;
};

}  // namespace dslaunch::zero
