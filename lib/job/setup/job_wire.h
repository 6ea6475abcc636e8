// How values travel between the hosts of a job: what its config says, and what the job decides
// where the config leaves it to the measured link (`auto`). Data path: run config, topology ->
// [here] -> step plan options; links -> [here] -> the same. Threads: one.
#pragma once

#include <string>

#include "job/setup/job_setup.h"
#include "plan/step/step_plan.h"
#include "runtime/comm_gloo/job_comm.h"

namespace dslaunch::job {

// What CONFIG says for the ranks that train the same parameters, PLACE being one of them. What is
// left to the link is off. Throws Error{kConfig} if zero_hpz_partition_size is not the number of
// each host's ranks.
[[nodiscard]] plan::HostWire wire_of(const config::RunConfig& config,
                                     const runtime::Topology& place, bool on_gpu);

// Measures the links between the hosts and decides what the config leaves to them. Changes SETUP's
// options and the bytes of its plan. All ranks call it, with ALL the comm of all ranks; without
// anything to decide it sends nothing. Rank 0 logs the reasons.
void choose_wire(JobSetup& setup, runtime::JobComm& all);

// What travels in fewer bits and what hosts keep, a line; empty: nothing does.
[[nodiscard]] std::string wire_text(const JobSetup& setup);

// The time in which a link of BYTES_PER_S and a processor that packs NUMEL_PER_S elements bring an
// element to another host, as it is or packed.
struct WireCost {
    double exact_ns = 0;
    double packed_ns = 0;  // the packing counted too
    [[nodiscard]] bool packs() const { return packed_ns < 0.9 * exact_ns; }
};
[[nodiscard]] WireCost wire_cost(WirePacking packing, int64_t element_bytes, double bytes_per_s,
                                 double numel_per_s);

}  // namespace dslaunch::job
