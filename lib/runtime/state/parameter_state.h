// A rank's parameters, gradients and optimizer states, as their owner uses them. Every other user
// uses only the one interface that it needs. Implemented in lib/zero.
#pragma once

#include "runtime/state/copied_state.h"
#include "runtime/state/readable_state.h"
#include "runtime/state/savable_state.h"
#include "runtime/state/state_account.h"
#include "runtime/state/stepping_state.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

// The whole state of a rank's parameters: training, saving, evaluation, reports
// and checks.
class ParameterState : public SteppingState,
                       public ReadableState,
                       public SavableState,
                       public StateAccount,
                       public WritableState,
                       public CopiedState {};

}  // namespace dslaunch::runtime
