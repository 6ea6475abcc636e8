// The pieces that a rank writes into a checkpoint, and the guard of the values while they are
// written. The interface between the state of a run (lib/zero) and the checkpointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace dslaunch::runtime {

// Elements of a parameter's fp32 weights or of one of its optimizer states, which are fp32 too.
struct SavedPiece {
    int parameter = -1;                 // index into the model's parameters
    int state = -1;                     // index of the state; -1 for the weights
    Range elements;                     // range in the order of the parameter's memory
    const std::byte* values = nullptr;  // [elements.numel] fp32; null if on disk: see bring_saved()
    int unit = -1;                      // the piece's unit, as in before_update()
};

// The guard is called before a unit of the state is changed. Thread: the communication lane.
class UpdateGuard {
  public:
    virtual ~UpdateGuard() = default;
    // Blocks until the unit's values from before the update are no longer needed.
    virtual void before_update(int unit) = 0;
};

}  // namespace dslaunch::runtime
