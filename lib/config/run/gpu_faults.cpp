#include "config/run/gpu_faults.h"

#include <fmt/format.h>

namespace dslaunch::config {

std::vector<GpuFault> gpu_faults(const RunConfig& config) {
    std::vector<GpuFault> faults;
    const auto add = [&](const char* path, const std::string& what, const char* instead) {
        faults.push_back({path, fmt::format("{} not available on a GPU in this version; {}, or use "
                                            "dslaunch.device: cpu",
                                            what, instead)});
    };
    if (config.offload.optimizer != OffloadDevice::kNone)
        add("zero_optimization.offload_optimizer", "is", "remove it");
    if (config.offload.parameters != OffloadDevice::kNone)
        add("zero_optimization.offload_param", "is", "remove it");
    if (config.lagging.on) add("zero_optimization.zenflow", "late updates are", "remove it");
    if (config.optimizer.compresses()) add("optimizer.type", "1-bit exchanges are", "use AdamW");
    if (config.pipeline.stages > 1)
        add("dslaunch.pipeline.stages", "pipelines are", "remove the key");
    if (config.tensor.size > 1)
        add("dslaunch.tensor.size", "ranks that share layers are", "remove the key");
    if (config.sequence.size > 1)
        add("dslaunch.sequence.size", "ranks that share positions are", "remove the key");
    if (!config.precision.master_copies)
        add("bf16.bf16_master_weights_and_grads", "training without master weights is",
            "remove it");
    if (config.states != MomentFormat::kFp32)
        add("dslaunch.optimizer.states", "moments in fewer bits than fp32 are", "use fp32");
    if (const OptimizerFacts& facts = facts_of(config.optimizer.kind); !facts.runs_on_gpus)
        add("optimizer.type", std::string(facts.type) + " is", "use another one");
    const WireConfig& wire = config.zero.wire;
    if (wire.parameters == WireChoice::kOn)
        add("zero_optimization.zero_quantized_weights", "is", "remove it");
    if (wire.frozen == WireChoice::kOn)
        add("zero_optimization.zero_quantized_nontrainable_weights", "is", "remove it");
    if (wire.gradients == WireChoice::kOn)
        add("zero_optimization.zero_quantized_gradients", "is", "remove it");
    if (wire.gradient_dtype != DType::kF32 && !config.precision.fp32_weights)
        add("communication_data_type", "16 bits are", "use fp32");
    if (wire.host_copy_ranks > 1)
        add("zero_optimization.zero_hpz_partition_size", "is", "use mics_shard_size");
    return faults;
}

}  // namespace dslaunch::config
