// `dslaunch plan --compare`: what each way of sharding costs, and what each rule of
// dslaunch.offload.cache moves between memory and disk for several numbers of buffers.
#pragma once

#include <string>

#include "job/setup/job_setup.h"

namespace dslaunch::worker {

// Returns the ways of sharding side by side, as a table or one JSON object: the shares of the
// busiest and the idlest rank, their pieces, and the bytes that a step moves through disks and
// sends for them.
[[nodiscard]] std::string compare_shards(const job::JobSetup& setup, bool in_json);

// The comparison for the rank of SETUP's plan, as a table or one JSON object. Throws Error{kConfig}
// if nothing passes through buffers.
[[nodiscard]] std::string compare_caches(const job::JobSetup& setup, bool json);

}  // namespace dslaunch::worker
