// `dslaunch plan --compare cache`: rules by which the slots between memory and disk could be given
// up, beside what the plan does.
#pragma once

#include <string>

#include "worker/job_setup.h"

namespace dslaunch {

// Of the rank at PLACE, as a table or one JSON object. Throws Error{kConfig}: nothing passes
// through slots.
[[nodiscard]] std::string compare_caches(const JobSetup& setup, const Topology& place, bool json);

}  // namespace dslaunch
