// Chooses how the agents of a job reach its hosts, and refuses options that do not fit that choice.
// Data path: options, hosts -> [here] -> JobSpec. No host is contacted.
#pragma once

#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/plan/job_spec.h"
#include "launcher/run/build_job.h"
#include "launcher/run/host_source.h"
#include "launcher/run/machine.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

// Sets the members of JOB.spec that depend on the transport, and the ssh ports of HOSTS, which come
// from SOURCE. Notes the options that have no effect. Throws Error{kUsage} for bad --launcher_args.
void choose_transport(const RunOptions& options, const Machine& machine, HostSource source,
                      BuiltJob& job, std::vector<launch::HostSlots>& hosts);

// Throws Error{kUsage} for options that do not fit the transport in SPEC, which is complete.
void check_transport(const RunOptions& options, HostSource source, const launch::JobSpec& spec);

}  // namespace dslaunch::launcher
