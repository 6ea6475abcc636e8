// `dslaunch plan --compare cache`: rules by which the buffers between memory and disk could be
// given up, beside what the plan does.
#pragma once

#include <string>

#include "job/setup/job_setup.h"

namespace dslaunch::worker {

// Of the rank that SETUP's plan is of, as a table or one JSON object. Throws Error{kConfig}:
// nothing passes through buffers.
[[nodiscard]] std::string compare_caches(const job::JobSetup& setup, bool json);

}  // namespace dslaunch::worker
