// A rank's parameters, gradients and optimizer states, as seen by their owner. Each user takes the
// one interface that it needs. Implemented in lib/zero.
#pragma once

#include "runtime/state/readable_state.h"
#include "runtime/state/savable_state.h"
#include "runtime/state/state_account.h"
#include "runtime/state/stepping_state.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

class ParameterState : public SteppingState,
                       public ReadableState,
                       public SavableState,
                       public StateAccount,
                       public WritableState {};

}  // namespace dslaunch::runtime
