// The table's part on ZeRO, offload and disks.
#include "config/schema/schema_tables.h"

namespace dslaunch::config {
namespace {

using enum KeyType;
using enum KeyStatus;

constexpr const char* kWaitsForNorm =
    "updates that need the norm wait for it, and the others begin during the backward pass: the "
    "results are the same";
constexpr const char* kNoLoCo =
    "dslaunch.communication.error_feedback keeps the whole error, without average or reset";
constexpr const char* kGatheredTogether =
    "a segment's parameters are gathered together, as the plan says";
constexpr const char* kBuffersComputed =
    "the plan computes as many as there are gathers at once; the log says how many";
constexpr const char* kBufferBytesComputed =
    "the plan makes each as large as the buckets that pass through it; the log says how large";

// clang-format off
constexpr KeySpec kZeroKeys[] = {
    {"zero_optimization", kObject, "null", "", "ZeRO: sharding of optimizer state, gradients and parameters"},
    {"zero_optimization.stage", kInt, "0", "0|1|2|3", "0: off, 1: optimizer state, 2: gradients too, 3: parameters too"},
    {"zero_optimization.reduce_bucket_size", kInt, "5e8", ">0", "Elements of gradient that are reduced at once"},
    {"zero_optimization.overlap_comm", kBool, "null", "", "Reduce a bucket while backward goes on", kWithoutEffect, "the plan always does, and costs no stream or buffer more"},
    {"zero_optimization.allgather_partitions", kBool, "true", "", "All-gather in place of broadcasts after the update", kWithoutEffect, "updated parameters are gathered bucket by bucket"},
    {"zero_optimization.allgather_bucket_size", kInt, "5e8", ">=0", "Elements of parameters that are gathered at once", kWithoutEffect, "parameters are gathered in the buckets of reduce_bucket_size"},
    {"zero_optimization.reduce_scatter", kBool, "true", "", "Reduce-scatter in place of all-reduce", kWithoutEffect, "each rank sums the part that it keeps, which gives the same numbers"},
    {"zero_optimization.contiguous_gradients", kBool, "true", "", "Gradients in one buffer", kWithoutEffect, "gradients are always views of the bucket"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kBool, "true", "", "Reduce buckets of several ranks together", kWithoutEffect, "a bucket is reduced for all ranks at once"},
    {"zero_optimization.round_robin_gradients", kBool, "false", "", "Spread gradient copies over ranks", kWithoutEffect, "gradients are written in place and not copied by rank"},
    {"zero_optimization.stage3_max_live_parameters", kInt, "1e9", ">=0", "Elements of parameters gathered at one time, at most (stage 3)"},
    another_name("zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters", "Another name of stage3_max_live_parameters"),
    {"zero_optimization.stage3_max_reuse_distance", kInt, "1e9", ">=0", "A parameter that is used again within so many elements stays gathered (stage 3; 0 where it is not given)"},
    another_name("zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance", "Another name of stage3_max_reuse_distance"),
    {"zero_optimization.stage3_prefetch_bucket_size", kInt, "5e7", ">=0", "Elements gathered ahead of their use, at most (stage 3)"},
    another_name("zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size", "Another name of stage3_prefetch_bucket_size"),
    {"zero_optimization.stage3_param_persistence_threshold", kInt, "1e5", ">=0", "Parameters of at most so many elements are not sharded (stage 3; 0 where it is not given)"},
    another_name("zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold", "Another name of stage3_param_persistence_threshold"),
    {"zero_optimization.stage3_model_persistence_threshold", kInt, "9223372036854775807", ">=0", "Elements of all parameters together that are not sharded, at most (stage 3)"},
    another_name("zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold", "Another name of stage3_model_persistence_threshold"),
    {"zero_optimization.sub_group_size", kInt, "1e9", ">=0", "Elements updated at once, at most (optimizer states on nvme)"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kBool, "false", "", "Gather the weights to save them", kWithoutEffect, "the weights are always saved whole"},
    another_name("zero_optimization.gather_16bit_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save", "Another name of stage3_gather_16bit_weights_on_model_save"),
    another_name("zero_optimization.stage3_gather_fp16_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save", "Old name of stage3_gather_16bit_weights_on_model_save"),
    {"zero_optimization.stage3_module_granularity_threshold", kInt, "0", ">=0", "Fetch small modules whole", kWithoutEffect, kGatheredTogether},
    another_name("zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold", "Another name of stage3_module_granularity_threshold"),
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kBool, "false", "", "Fetch by all-reduce", kWithoutEffect, "how a shard reaches a rank follows from where the two are"},
    another_name("zero_optimization.use_all_reduce_for_fetch_params", "zero_optimization.stage3_use_all_reduce_for_fetch_params", "Another name of stage3_use_all_reduce_for_fetch_params"),
    {"zero_optimization.stage3_allgather_sequential", kBool, "false", "", "Gather one parameter after the other", kWithoutEffect, "parameters are gathered in place, nothing is copied together first"},
    another_name("zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential", "Another name of stage3_allgather_sequential"),
    {"zero_optimization.load_from_fp32_weights", kBool, "true", "", "Start from fp32 weights of a checkpoint", kWithoutEffect, "master weights are kept and saved in fp32"},
    {"zero_optimization.elastic_checkpoint", kBool, "false", "", "Deprecated", kWithoutEffect, "checkpoints can be read at any world size"},
    {"zero_optimization.grad_hooks", kBool, "true", "", "Documented, not in DeepSpeed's code", kWithoutEffect, "there are no hooks here"},
    {"zero_optimization.ignore_unused_parameters", kBool, "true", "", "Go on when a parameter gets no gradient", kNotYet, "unused parameters are always named and skipped: remove the key"},
    {"zero_optimization.compute_grad_norm", kBool, "true", "", "Compute the norm of the gradients", kWithoutEffect, "metrics.jsonl has it when gradient_clipping is set"},
    {"zero_optimization.parameter_alignment", kBool, "false", "", "Align parameters in the flat buffer", kWithoutEffect, "the update takes parameters wherever they start"},
    {"zero_optimization.legacy_stage1", kBool, "false", "", "Old code of stage 1", kWithoutEffect, "there is one implementation"},
    {"zero_optimization.memory_efficient_linear", kBool, "true", "", "Linear layers that keep less", kWithoutEffect, "no Python layer is patched"},
    {"zero_optimization.pipeline_loading_checkpoint", kBool, "false", "", "Load and move a checkpoint at the same time", kWithoutEffect, "an archive is mapped and read where it is needed"},
    {"zero_optimization.override_module_apply", kBool, "true", "", "Patch Module.apply", kWithoutEffect, "no Python module is patched"},
    {"zero_optimization.log_trace_cache_warnings", kBool, "false", "", "Warn when the trace of modules changes", kWithoutEffect, "the plan is known before the first step"},
    {"zero_optimization.enable_sanity_checks", kBool, "false", "", "Check the state of sharded parameters", kWithoutEffect, "the plan checker runs on every plan"},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kBool, "false", "", "Keep Muon's momentum in memory", kWithoutEffect, "read only with Muon and offload"},
    {"zero_optimization.leaf_module", kObject, "null", "", "Modules that are fetched whole", kWithoutEffect, kGatheredTogether},
    {"zero_optimization.leaf_module.classes", kList, "null", "", "By class", kWithoutEffect, kGatheredTogether},
    {"zero_optimization.leaf_module.names", kList, "[]", "", "By name", kWithoutEffect, kGatheredTogether},
    {"zero_optimization.leaf_module.name_suffixes", kList, "[]", "", "By end of the name", kWithoutEffect, kGatheredTogether},
    {"zero_optimization.zero_quantized_weights", kBool, "false", "", "Gather parameters between hosts in 8 bits (stage 3); auto: where the measured link makes it faster"},
    {"zero_optimization.zero_quantized_gradients", kBool, "false", "", "Gradients are reduced between hosts in 4 bits (stages 1 to 3); auto: where the measured link makes it faster"},
    {"zero_optimization.zero_quantized_nontrainable_weights", kBool, "false", "", "Frozen parameters are gathered between hosts in 8 bits (stage 3); auto as zero_quantized_weights"},
    {"zero_optimization.zero_hpz_partition_size", kInt, "1", ">0", "The ranks of a host, which keeps what it gathers until the step ends (stage 3); auto: those, 1: off"},
    {"zero_optimization.zeropp_loco_param", kObject, "null", "", "Error feedback of quantized gradients", kNotYet, kNoLoCo},
    {"zero_optimization.zeropp_loco_param.err_beta", kFloat, "0.8", "0..1", "Moving average of the error", kNotYet, kNoLoCo},
    {"zero_optimization.zeropp_loco_param.reset_T", kInt, "1024", ">0", "Steps between resets of the error", kNotYet, kNoLoCo},
    {"zero_optimization.mics_shard_size", kInt, "-1", "", "Ranks that shard one copy of the states: on CPUs those of each host, on GPUs any divisor of all; -1: all ranks"},
    {"zero_optimization.mics_hierarchical_params_gather", kBool, "false", "", "Gather in two steps", kWithoutEffect, "ranks of a group read each other's memory; on GPUs NCCL chooses the way"},
    {"zero_optimization.cpu_offload", kBool, "null", "", "Deprecated: offload_optimizer.device cpu or none"},
    {"zero_optimization.cpu_offload_param", kBool, "null", "", "Deprecated: offload_param.device cpu or none"},
    {"zero_optimization.cpu_offload_use_pin_memory", kBool, "null", "", "Deprecated: pin_memory of offload_param and offload_optimizer"},
    {"zero_optimization.zenflow", kObject, "null", "", "Important parts of the parameters are updated in every step, the rest later (Adam, AdamW; on CPUs)"},
    {"zero_optimization.zenflow.topk_ratio", kFloat, "0.1", "0..1", "Part of each block of a tensor that is important, by the size of its gradients; above 0 and below 1"},
    {"zero_optimization.zenflow.select_strategy", kString, "auto", "auto|step|epoch", "select_interval counts steps, or epochs of steps_per_epoch; auto: epochs where that is given"},
    {"zero_optimization.zenflow.select_interval", kFree, "auto", "", "Steps or epochs between choices of what is important, in whole update_intervals; auto: 1 epoch, or 16 of these"},
    {"zero_optimization.zenflow.update_interval", kFree, "auto", "", "Steps between updates of the rest; auto: 4"},
    {"zero_optimization.zenflow.overlap_step", kBool, "false", "", "The rest is updated while the next step computes, and lands with that step's updates"},
    {"zero_optimization.zenflow.offload", kBool, "false", "", "Offload the selection", kWithoutEffect, "on CPUs the states of what is important are in memory, where they are used"},
    {"zero_optimization.zenflow.auto_ratio", kFloat, "0.99", "0..1", "Threshold of automatic intervals", kWithoutEffect, "update_interval auto is a number, so that plans are known from the start"},
    {"zero_optimization.zenflow.full_warm_up_rounds", kInt, "0", ">=0", "First steps, one at least, that update everything"},
    {"zero_optimization.zenflow.steps_per_epoch", kInt, "null", ">0", "Steps of an epoch, by which select_strategy epoch counts"},
    {"zero_optimization.zenflow.pt_reserved_cores_perc", kFloat, "0.5", "0..1", "Part of the cores for PyTorch", kWithoutEffect, "a late update has one thread in addition to the rank's own"},
    {"zero_optimization.offload_param", kObject, "null", "", "Parameters on disk (stage 3)"},
    {"zero_optimization.offload_param.device", kString, "none", "none|cpu|nvme", "Where they are kept; on a CPU run cpu is where they are anyway"},
    {"zero_optimization.offload_param.nvme_path", kStrings, "null", "", "Folder on the disk, or a list of one folder on each disk, striped"},
    {"zero_optimization.offload_param.pin_memory", kBool, "true", "", "Register the buffers of the disk tier with the kernel"},
    {"zero_optimization.offload_param.buffer_count", kInt, "5", ">=0", "Buffers that parameters from disk pass through", kWithoutEffect, kBuffersComputed},
    {"zero_optimization.offload_param.buffer_size", kInt, "1e8", ">=0", "Elements of such a buffer", kWithoutEffect, kBufferBytesComputed},
    {"zero_optimization.offload_param.max_in_cpu", kInt, "1e9", ">=0", "Elements of a rank's parameters, at most, that stay in memory, whole chunks of them (0 where it is not given)"},
    {"zero_optimization.offload_optimizer", kObject, "null", "", "Moments, master copies and reduced gradients on disk (stages 1 to 3)"},
    {"zero_optimization.offload_optimizer.device", kString, "none", "none|cpu|nvme", "Where they are kept; on a CPU run cpu is where they are anyway"},
    {"zero_optimization.offload_optimizer.nvme_path", kStrings, "null", "", "Folder on the disk, or a list of one folder on each disk, striped"},
    {"zero_optimization.offload_optimizer.pin_memory", kBool, "true", "", "Register the buffers of the disk tier with the kernel"},
    {"zero_optimization.offload_optimizer.ratio", kFloat, "1.0", "0..1", "Part of the states that is kept on disk, the rest stays in memory"},
    {"zero_optimization.offload_optimizer.buffer_count", kInt, "4", ">=0", "Chunks in memory at once while they pass, at least 2"},
    {"zero_optimization.offload_optimizer.fast_init", kBool, "false", "", "Quick start with nvme", kWithoutEffect, "at the start each state is written once and none is read"},
    {"zero_optimization.offload_optimizer.pipeline_read", kBool, "false", "", "Read while updating", kWithoutEffect, "chunks are always read while others are updated"},
    {"zero_optimization.offload_optimizer.pipeline_write", kBool, "false", "", "Write while updating", kWithoutEffect, "chunks are always written while others are updated"},
    {"zero_optimization.offload_optimizer.pipeline", kBool, "false", "", "Both of them", kWithoutEffect, "chunks are always read and written while others are updated"},
    {"zero_optimization.offload_optimizer.super_offload", kBool, "false", "", "Updates before the norm is known", kWithoutEffect, kWaitsForNorm},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", kFloat, "0.8", "0..1", "Part of the cores for the update", kWithoutEffect, "the update uses the rank's threads (OMP_NUM_THREADS)"},
    {"aio", kObject, "null", "", "Reading and writing of the disk tier"},
    {"aio.block_size", kInt, "1048576", ">0", "Bytes of one request, a multiple of 4096; where it is not given, what `dslaunch io-bench` stored for the disk, else the engine's default"},
    {"aio.queue_depth", kInt, "8", ">0", "Requests in flight; where it is not given as block_size"},
    {"aio.intra_op_parallelism", kInt, "1", ">0", "Threads of the thread engine for each direction, each with one request; where it is not given, as many as queue_depth"},
    another_name("aio.thread_count", "aio.intra_op_parallelism", "Documented name of intra_op_parallelism"),
    {"aio.single_submit", kBool, "false", "", "Submit requests one by one", kWithoutEffect, "requests are handed over in groups as places become free"},
    {"aio.overlap_events", kBool, "true", "", "Submit and wait at the same time", kWithoutEffect, "completions are taken as they come"},
    {"aio.use_gds", kBool, "false", "", "GPUDirect Storage", kWithoutEffect, "nothing goes between disk and GPU: offload is there on CPU runs only"},
};
// clang-format on

}  // namespace

std::span<const KeySpec> zero_keys() {
    return kZeroKeys;
}

}  // namespace dslaunch::config
