// Chooses what a job packs between its hosts if its config leaves that to the link (`auto`): the
// links are measured once all ranks have met. Data path: comm of all ranks -> [here] -> step plan
// options. Threads: one.
#pragma once

#include <cstdint>

#include "job/setup/job_setup.h"
#include "runtime/comm_gloo/job_comm.h"

namespace dslaunch::job {

// Measures the links between the hosts and decides what the config leaves to them. Changes SETUP's
// options and the bytes of its plan. All ranks call it, with ALL the comm of all ranks; without
// anything to decide it sends nothing. Rank 0 logs the reasons.
void choose_wire(JobSetup& setup, runtime::JobComm& all);

// The time to bring an element to another host, as it is or packed, by a link of BYTES_PER_S and a
// processor that packs NUMEL_PER_S elements.
struct WireCost {
    double exact_ns = 0;
    double packed_ns = 0;  // the packing counted too
    [[nodiscard]] bool packs() const { return packed_ns < 0.9 * exact_ns; }
};
[[nodiscard]] WireCost wire_cost(WirePacking packing, int64_t element_bytes, double bytes_per_s,
                                 double numel_per_s);

}  // namespace dslaunch::job
