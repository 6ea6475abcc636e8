// The form in which values are sent between the hosts of a job. The config names it, or the job
// decides it from the measured links if the config says `auto`. Data path: run config, topology ->
// [here] -> step plan options; links -> [here] -> step plan options. Threads: one.
#pragma once

#include <array>
#include <string>

#include "job/setup/job_setup.h"
#include "plan/step/step_plan.h"

namespace dslaunch::job {

// Returns the form in which values are sent between ranks that train the same parameters. CONFIG
// chooses the form. PLACE is the place of one of these ranks. Settings that depend on measured
// links are off. Throws Error{kConfig} if zero_hpz_partition_size is not the number of ranks on
// each host.
[[nodiscard]] plan::HostWire wire_of(const config::RunConfig& config,
                                     const runtime::Topology& place, bool on_gpu);

// Marks, in INFO, the parameters of MODEL whose gradients are sent exactly. The gradients of all
// other modules are rounded to 16 bits (torch_autocast.lower_precision_safe_modules).
void mark_exact_gradients(const config::WireConfig& config, const graph::Model& model,
                          plan::ModelInfo& info);

// Returns a line about the values that are sent in fewer bits and the copies that hosts keep.
// Returns an empty text if no value is sent in fewer bits and no host keeps a copy.
[[nodiscard]] std::string wire_text(const JobSetup& setup);

// A config key whose setting may depend on the measured links (`auto`, run/packing_choice.h).
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
