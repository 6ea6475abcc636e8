// `dslaunch plan --compare cache`: rules by which the slots between memory and disk could be given
// up, beside what the plan does.
#pragma once

#include <string>

#include "worker/job_setup.h"

namespace dslaunch {

// Of the rank that SETUP's plan is of, as a table or one JSON object. Throws Error{kConfig}:
// nothing passes through slots.
[[nodiscard]] std::string compare_caches(const JobSetup& setup, bool json);

}  // namespace dslaunch
