// Why a rank ends: the exit code and the words for an error of any kind. Feeds the roles that run
// as ranks of a job. No state.
#pragma once

#include <exception>
#include <string>

#include "base/error.h"

namespace dslaunch::worker {

struct RankFailure {
    ExitCode code = ExitCode::kInternal;
    std::string message;
};

// Memory that runs out counts as a fault of the set-up. REQUIRES: an exception of std.
[[nodiscard]] RankFailure failure_of(const std::exception_ptr& error);

}  // namespace dslaunch::worker
