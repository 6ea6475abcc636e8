// A rank's parameters, gradients and optimizer states, with all their interfaces. The owner uses
// this class; every other user uses only the interface that it needs. Implemented in lib/zero.
#pragma once

#include "runtime/state/copied_state.h"
#include "runtime/state/readable_state.h"
#include "runtime/state/savable_state.h"
#include "runtime/state/state_account.h"
#include "runtime/state/stepping_state.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

// The state of a rank's parameters, with the interfaces for training, saving, evaluation, reports
// and checks.
class ParameterState : public SteppingState,
                       public ReadableState,
                       public SavableState,
                       public StateAccount,
                       public WritableState,
                       public CopiedState {};

}  // namespace dslaunch::runtime
