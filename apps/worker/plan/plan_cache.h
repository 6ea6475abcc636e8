// `dslaunch plan --compare cache`: what each rule of dslaunch.offload.cache moves between memory
// and disk, for several numbers of buffers.
#pragma once

#include <string>

#include "job/setup/job_setup.h"

namespace dslaunch::worker {

// The comparison for the rank of SETUP's plan, as a table or one JSON object. Throws Error{kConfig}
// if nothing passes through buffers.
[[nodiscard]] std::string compare_caches(const job::JobSetup& setup, bool json);

}  // namespace dslaunch::worker
