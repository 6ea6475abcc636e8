// Turns any exception into the reason why a rank ends. Data path: a rank's edge -> [here] ->
// launcher, log, caller of the library. No state.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace dslaunch::job {

// The reason why a rank ends.
struct RankFailure {
    ExitCode code = ExitCode::kInternal;
    std::string message;
};

// Returns the exit code and the message for any error. Running out of memory counts as a fault of
// the set-up. REQUIRES: ERROR is an exception of std.
[[nodiscard]] RankFailure failure_of(const std::exception_ptr& error);

}  // namespace dslaunch::job
