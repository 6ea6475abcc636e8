// What a rank writes into a checkpoint, and the guard of what is being written. The seam between
// the state of a run (lib/zero) and the checkpointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace dslaunch::runtime {

// Elements of a parameter's fp32 weights or of one of its optimizer states, fp32 too.
struct SavedPiece {
    int parameter = -1;                 // index into the model's
    int state = -1;                     // -1: the weights
    Range elements;                     // in the order of the parameter's memory
    const std::byte* values = nullptr;  // [elements.numel] fp32; null: on disk, see bring_saved()
    int unit = -1;                      // what changes it: before_update() names it
};

// Asked before a unit of the state is changed. Threads: the communication lane.
class UpdateGuard {
  public:
    virtual ~UpdateGuard() = default;
    // Blocks until the unit's values of before may be lost.
    virtual void before_update(int unit) = 0;
};

}  // namespace dslaunch::runtime
