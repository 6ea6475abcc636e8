// Chooses how the agents of a job reach its hosts, and refuses options that do not fit that choice.
// Data path: options, hosts -> [here] -> JobSpec. No host is contacted.
#pragma once

#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/plan/job_spec.h"
#include "launcher/options/machine.h"
#include "launcher/options/run_options.h"
#include "launcher/run/host_source.h"

namespace dslaunch::launcher {

// Sets the members of SPEC that depend on the transport, and the ssh ports of HOSTS, which come
// from SOURCE. Returns notes for the user about options that have no effect. Throws Error{kUsage}
// for bad --launcher_args.
[[nodiscard]] std::vector<std::string> choose_transport(const RunOptions& options,
                                                        const Machine& machine, HostSource source,
                                                        std::vector<launch::HostSlots>& hosts,
                                                        launch::JobSpec& spec);

// Throws Error{kUsage} for options that do not fit the transport in SPEC, which is complete.
void check_transport(const RunOptions& options, HostSource source, const launch::JobSpec& spec);

}  // namespace dslaunch::launcher
