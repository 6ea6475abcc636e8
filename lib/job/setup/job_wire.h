// The form in which values travel between the hosts of a job: the config says it, or the job
// decides it if the config leaves it to the measured link (`auto`). Data path: run config, topology
// -> [here] -> step plan options; links -> [here] -> the same. Threads: one.
#pragma once

#include <array>
#include <string>

#include "job/setup/job_setup.h"
#include "plan/step/step_plan.h"

namespace dslaunch::job {

// Returns CONFIG's answer for the ranks that train the same parameters, PLACE being one of them.
// Settings that are left to the link are off. Throws Error{kConfig} if zero_hpz_partition_size is
// not the number of each host's ranks.
[[nodiscard]] plan::HostWire wire_of(const config::RunConfig& config,
                                     const runtime::Topology& place, bool on_gpu);

// Marks the parameters in INFO, of MODEL, whose gradients travel as they are, while gradients of
// other modules are rounded to 16 bits (torch_autocast.lower_precision_safe_modules).
void mark_exact_gradients(const config::WireConfig& config, const graph::Model& model,
                          plan::ModelInfo& info);

// Returns a line about values that travel in fewer bits and copies that hosts keep; empty: none do.
[[nodiscard]] std::string wire_text(const JobSetup& setup);

// A key that may leave its setting to the measured link (`auto`, run/link_choice.h).
struct WireKey {
    const char* key;
    config::WireChoice config::WireConfig::*said;
    WirePacking plan::HostWire::*wire;
    WirePacking packing;
};
inline constexpr std::array<WireKey, 3> kWireKeys{{
    {"zero_optimization.zero_quantized_weights", &config::WireConfig::parameters,
     &plan::HostWire::parameters, WirePacking::kInt8},
    {"zero_optimization.zero_quantized_nontrainable_weights", &config::WireConfig::frozen,
     &plan::HostWire::frozen, WirePacking::kInt8},
    {"zero_optimization.zero_quantized_gradients", &config::WireConfig::gradients,
     &plan::HostWire::gradients, WirePacking::kInt4},
}};

}  // namespace dslaunch::job
