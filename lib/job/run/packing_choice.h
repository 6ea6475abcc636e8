// Chooses which values a job packs between its hosts, for config settings that depend on the links
// (`auto`). The links are measured after all ranks have connected. Data path: comm of all ranks ->
// [here] -> step plan options. Threads: one.
#pragma once

#include <cstdint>

#include "job/setup/job_setup.h"
#include "runtime/comm_gloo/job_comm.h"

namespace dslaunch::job {

// Measures the links between the hosts and decides the settings that the config leaves open.
// Changes SETUP's options and the bytes of its plan. Called by all ranks; ALL connects all ranks.
// Sends nothing if there is nothing to decide. Rank 0 logs the reasons.
void choose_packing(JobSetup& setup, runtime::JobComm& all);

// The time to send one element to another host, packed and not packed. The link has BYTES_PER_S,
// and the processor packs NUMEL_PER_S elements per second.
struct PackingCost {
    double exact_ns = 0;
    double packed_ns = 0;  // including the time to pack
    // Returns true if packing saves more than a tenth of the time.
    [[nodiscard]] bool packs() const { return packed_ns < 0.9 * exact_ns; }
};
// Returns the cost of an element that takes ELEMENT_BYTES if it is not packed.
[[nodiscard]] PackingCost packing_cost(WirePacking packing, int64_t element_bytes,
                                       double bytes_per_s, double numel_per_s);

}  // namespace dslaunch::job
