// The table's part on parallelism, graph rewrites and checkpoints.
#include "config/schema/schema_tables.h"

namespace dslaunch::config {
namespace {

using enum KeyType;
using enum KeyStatus;

constexpr const char* kNoExperts = "expert parallelism is not available yet in this version";
constexpr const char* kNoDeepCompile =
    "graph rewrites of DeepCompile are not available: the step plan schedules communication";
constexpr const char* kOneFormat = "dslaunch has one checkpoint format with one writer";
constexpr const char* kRulesFound =
    "rules are found from the graph; dslaunch.tensor.rules gives others";
constexpr const char* kNoInjection =
    "kernels of inference are not used for training: remove the key";
constexpr const char* kSizeSaid =
    "tensor_parallel.autotp_size says it, and heads and blocks are dealt whole";
constexpr const char* kNoNebula = "Nebula is a service of Azure: use dslaunch.save";

// clang-format off
constexpr KeySpec kFeatureKeys[] = {
    {"pipeline", kObject, "null", "", "DeepSpeed's pipeline section"},
    another_name("pipeline.stages", "dslaunch.pipeline.stages", "Another name of dslaunch.pipeline.stages; auto: 1"),
    {"pipeline.partition", kString, "best", "", "How layers are split", kWithoutEffect, "dslaunch.pipeline.first_segments says where stages begin, or else what segments cost"},
    {"pipeline.seed_layers", kBool, "false", "", "Seed each layer", kWithoutEffect, "every drawing node has a seed of its own"},
    {"pipeline.activation_checkpoint_interval", kInt, "0", ">=0", "Layers between checkpoints", kNotYet, "say activation_checkpointing.number_checkpoints instead"},
    {"pipeline.pipe_partitioned", kBool, "true", "", "Share activations among tensor parallel ranks", kWithoutEffect, "there are none"},
    {"pipeline.grad_partitioned", kBool, "true", "", "Share gradients among tensor parallel ranks", kWithoutEffect, "there are none"},
    {"pipeline.use_reentrant", kBool, "true", "", "PyTorch's reentrant checkpoint", kWithoutEffect, "there is one way of recomputing"},
    {"tensor_parallel", kObject, "null", "", "DeepSpeed's tensor parallel section"},
    another_name("tensor_parallel.autotp_size", "dslaunch.tensor.size", "Another name of dslaunch.tensor.size; 0 or 1: off", "0", ">=0"),
    {"tensor_parallel.preset_model", kString, "null", "", "Rules of a known model", kWithoutEffect, kRulesFound},
    {"tensor_parallel.tp_overlap_comm", kBool, "false", "", "Overlap its communication", kNotYet, "collectives of a layer are waited for in this version"},
    {"tensor_parallel.tp_size", kInt, "1", ">0", "Old name of autotp_size", kNotYet, "say dslaunch.tensor.size instead"},
    {"tensor_parallel.tp_grain_size", kInt, "1", ">0", "Multiple that shards are rounded to", kNotYet, "heads and blocks are dealt whole, whatever their size"},
    {"tensor_parallel.vocab_parallel_lm_head", kBool, "null", "", "Split the last layer by the vocabulary", kWithoutEffect, kRulesFound},
    {"tensor_parallel.vocab_parallel_ce_backend", kString, "torch", "torch|liger", "Who computes the loss of such a layer", kWithoutEffect, "there is one implementation"},
    {"tensor_parallel.dtype", kString, "null", "", "Type of the model", kWithoutEffect, "fp16, bf16 or the model itself say it"},
    {"tensor_parallel.keep_module_on_host", kBool, "false", "", "Keep a checkpoint in host memory", kWithoutEffect, "an archive is mapped and read where it is needed"},
    {"tensor_parallel.kernel_inject", kBool, "false", "", "Kernels of DeepSpeed's inference", kNotYet, kNoInjection},
    {"tensor_parallel.replace_with_kernel_inject", kBool, "false", "", "Other name of kernel_inject", kNotYet, kNoInjection},
    {"tensor_parallel.injection_policy_tuple", kList, "null", "", "Layers whose results are summed", kNotYet, kRulesFound},
    {"tensor_parallel.tp", kObject, "null", "", "The size once more", kWithoutEffect, kSizeSaid},
    {"tensor_parallel.tp.tp_size", kInt, "1", ">0", "1, or as autotp_size", kWithoutEffect, kSizeSaid},
    {"tensor_parallel.tp.tp_grain_size", kInt, "1", ">0", "Multiple that shards are rounded to", kWithoutEffect, kSizeSaid},
    {"tensor_parallel.tensor_parallel", kObject, "null", "", "Another name of tp", kWithoutEffect, kSizeSaid},
    {"tensor_parallel.tensor_parallel.tp_size", kInt, "1", ">0", "1, or as autotp_size", kWithoutEffect, kSizeSaid},
    {"tensor_parallel.tensor_parallel.tp_grain_size", kInt, "1", ">0", "Multiple that shards are rounded to", kWithoutEffect, kSizeSaid},
    {"tensor_parallel.partition_config", kObject, "null", "", "Rules of how layers are split", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.use_default_specs", kBool, "true", "", "Add the built-in rules", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.layer_specs", kList, "[]", "", "The rules", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.layer_specs.[].patterns", kList, "[]", "", "Regular expressions of parameter names", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.layer_specs.[].partition_type", kString, "column", "row|column|skip", "How they are split", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.layer_specs.[].shape", kList, "null", "", "Shape in parts", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.layer_specs.[].partition_dim", kInt, "null", "", "Dimension that is split", kNotYet, kRulesFound},
    {"tensor_parallel.partition_config.layer_specs.[].model_types", kList, "null", "", "Models that the rule is for", kNotYet, kRulesFound},
    {"expert_parallel", kObject, "null", "", "Expert parallelism", kNotYet, kNoExperts},
    {"expert_parallel.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoExperts},
    {"expert_parallel.autoep_size", kInt, "1", ">0", "Ranks that share the experts", kNotYet, kNoExperts},
    {"expert_parallel.expert_tensor_parallel_size", kInt, "1", ">0", "Ranks that share one expert", kNotYet, kNoExperts},
    {"expert_parallel.preset_model", kString, "null", "", "Names of a known model", kNotYet, kNoExperts},
    {"expert_parallel.use_grouped_mm", kBool, "true", "", "Grouped matrix products", kNotYet, kNoExperts},
    {"expert_parallel.disable_triton_grouped_mm", kBool, "false", "", "Without Triton", kNotYet, kNoExperts},
    {"expert_parallel.async_split_plan", kBool, "false", "", "Plan the exchange while computing", kNotYet, kNoExperts},
    {"expert_parallel.validate_folding_routing", kBool, "false", "", "Check the routing of folded ranks", kNotYet, kNoExperts},
    {"expert_parallel.comm_backend", kString, "comm", "comm|deepep", "Who moves tokens", kNotYet, kNoExperts},
    {"expert_parallel.comm_max_tokens_per_rank", kInt, "0", ">=0", "Most tokens of a rank", kNotYet, kNoExperts},
    {"expert_parallel.comm_num_sm", kInt, "12", ">=0", "Processors of the GPU that move tokens", kNotYet, kNoExperts},
    {"expert_parallel.comm_qp_margin", kInt, "4", ">=0", "Connections more than needed", kNotYet, kNoExperts},
    {"expert_parallel.combine_impl", kString, "auto", "auto|fused_weighted_sum|legacy_bmm|weighted_sum", "How results are summed", kNotYet, kNoExperts},
    {"expert_parallel.gate_up_impl", kString, "separate", "fused|separate", "Products of gate and up", kNotYet, kNoExperts},
    {"expert_parallel.row_weighting_impl", kString, "auto", "auto|eager|fused", "How rows are weighted", kNotYet, kNoExperts},
    {"expert_parallel.expert_activation", kString, "null", "", "Function between the weights", kNotYet, kNoExperts},
    {"expert_parallel.moe_layer_pattern", kString, "null", "", "Regular expression of the layers", kNotYet, kNoExperts},
    {"expert_parallel.router_pattern", kString, "null", "", "Name of the router", kNotYet, kNoExperts},
    {"expert_parallel.expert_pattern", kString, "null", "", "Name of the experts", kNotYet, kNoExperts},
    {"expert_parallel.score_func", kString, "null", "", "Function of the scores", kNotYet, kNoExperts},
    {"expert_parallel.score_apply", kString, "null", "", "Where scores are applied", kNotYet, kNoExperts},
    {"expert_parallel.route_norm", kBool, "null", "", "Normalise the scores", kNotYet, kNoExperts},
    {"expert_parallel.route_scale", kFloat, "null", "", "Scale of the scores", kNotYet, kNoExperts},
    {"expert_parallel.top_k", kFree, "null", "", "Experts of a token", kNotYet, kNoExperts},
    {"expert_parallel.routed_scaling_factor", kFree, "null", "", "Scale of the routed part", kNotYet, kNoExperts},
    {"expert_parallel.num_expert_groups", kInt, "null", "", "Groups of experts", kNotYet, kNoExperts},
    {"expert_parallel.num_limited_groups", kInt, "null", "", "Groups that a token may use", kNotYet, kNoExperts},
    {"expert_parallel.load_balance_coeff", kFloat, "null", "", "Load balancing", kNotYet, kNoExperts},
    {"expert_parallel.expert_w1", kString, "null", "", "Name of the first weight", kNotYet, kNoExperts},
    {"expert_parallel.expert_w2", kString, "null", "", "Name of the second weight", kNotYet, kNoExperts},
    {"expert_parallel.expert_w3", kString, "null", "", "Name of the third weight", kNotYet, kNoExperts},
    {"expert_parallel.num_experts_attr", kString, "null", "", "Attribute with the number of experts", kNotYet, kNoExperts},
    {"expert_parallel.top_k_attr", kString, "null", "", "Attribute with top_k", kNotYet, kNoExperts},
    {"expert_parallel.has_shared_experts", kBool, "null", "", "Experts that see every token", kNotYet, kNoExperts},
    {"expert_parallel.shared_experts_pattern", kString, "null", "", "Name of the shared experts", kNotYet, kNoExperts},
    {"expert_parallel.shared_experts_gate_pattern", kString, "null", "", "Name of their gate", kNotYet, kNoExperts},
    {"compile", kObject, "null", "", "DeepCompile", kWithoutEffect, kNoDeepCompile},
    {"compile.deepcompile", kBool, "false", "", "Turn it on", kWithoutEffect, kNoDeepCompile},
    {"compile.autoep_non_moe", kBool, "false", "", "Compile what surrounds experts", kWithoutEffect, kNoDeepCompile},
    {"compile.offload_activation_pin_memory", kBool, "true", "", "Page-locked buffers of activations", kWithoutEffect, kNoDeepCompile},
    {"compile.passes", kList, "null", "", "Passes to run", kWithoutEffect, kNoDeepCompile},
    {"compile.offload_activation", kBool, "false", "", "Offload activations", kWithoutEffect, kNoDeepCompile},
    {"compile.offload_opt_states", kBool, "false", "", "Offload optimizer state", kWithoutEffect, kNoDeepCompile},
    {"compile.offload_parameters", kBool, "false", "", "Offload parameters", kWithoutEffect, kNoDeepCompile},
    {"compile.double_buffer", kBool, "true", "", "Two buffers", kWithoutEffect, kNoDeepCompile},
    {"compile.symmetric_memory", kBool, "false", "", "Symmetric memory", kWithoutEffect, kNoDeepCompile},
    {"compile.free_activation", kBool, "false", "", "Free activations early", kWithoutEffect, kNoDeepCompile},
    {"compile.free_activation_threshold", kInt, "10485760", ">=0", "Smallest activation freed, bytes", kWithoutEffect, kNoDeepCompile},
    {"compile.debug_log", kBool, "false", "", "Log of the passes", kWithoutEffect, kNoDeepCompile},
    {"compile.sync_before_reduce", kBool, "false", "", "Synchronise before a reduction", kWithoutEffect, kNoDeepCompile},
    {"compile.sync_after_reduce", kBool, "false", "", "Synchronise after a reduction", kWithoutEffect, kNoDeepCompile},
    {"compile.sync_before_allgather", kBool, "false", "", "Synchronise before a gather", kWithoutEffect, kNoDeepCompile},
    {"compile.sync_after_allgather", kBool, "false", "", "Synchronise after a gather", kWithoutEffect, kNoDeepCompile},
    {"compile.keep_int_input_tensors", kBool, "true", "", "Keep integer inputs", kWithoutEffect, kNoDeepCompile},
    {"compile.keep_all_input_tensors", kBool, "false", "", "Keep all inputs", kWithoutEffect, kNoDeepCompile},
    {"checkpoint", kObject, "null", "", "Checkpoints", kWithoutEffect, kOneFormat},
    {"checkpoint.tag_validation", kString, "Warn", "Ignore|Warn|Fail|ignore|warn|fail|IGNORE|WARN|FAIL", "Do ranks agree on the name", kWithoutEffect, kOneFormat},
    {"checkpoint.load_universal", kBool, "false", "", "Load a converted checkpoint", kNotYet, "reading DeepSpeed's universal checkpoints is not available yet in this version"},
    {"checkpoint.use_node_local_storage", kBool, "false", "", "Hosts share no file system: as dslaunch.save.via rank0"},
    {"checkpoint.checkpoint_serialization", kBool, "true", "", "Serialise with torch.save", kWithoutEffect, kOneFormat},
    {"checkpoint.parallel_write", kObject, "null", "", "Writing in parallel", kWithoutEffect, kOneFormat},
    {"checkpoint.parallel_write.pipeline_stage", kBool, "false", "", "Stages write in parallel", kWithoutEffect, kOneFormat},
    {"checkpoint.writer", kObject, "null", "", "The writer", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.type", kString, "fast", "mock|python|fast", "Kind of writer", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.io_buffer_size", kInt, "67108864", ">0", "Bytes of its buffer", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.io_buffer_double", kBool, "true", "", "Two buffers", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.show_statistics", kBool, "false", "", "Print its speed", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.data_parallel", kString, "null", "replica|socket|machine|null", "Who writes", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.decoupled", kBool, "false", "", "Write while training", kWithoutEffect, kOneFormat},
    {"checkpoint.writer.io_multiplier", kInt, "1", ">0", "Writers per rank", kWithoutEffect, kOneFormat},
    {"nebula", kObject, "null", "", "Checkpoints by Nebula", kNotYet, kNoNebula},
    {"nebula.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoNebula},
    {"nebula.persistent_storage_path", kString, "null", "", "Folder", kNotYet, kNoNebula},
    {"nebula.persistent_time_interval", kInt, "100", ">0", "Seconds between checkpoints", kNotYet, kNoNebula},
    {"nebula.num_of_version_in_retention", kInt, "2", ">0", "Checkpoints kept", kNotYet, kNoNebula},
    {"nebula.enable_nebula_load", kBool, "true", "", "Load by Nebula", kNotYet, kNoNebula},
    {"nebula.load_path", kString, "null", "", "Folder to load from", kNotYet, kNoNebula},
    {"datastates_ckpt", kObject, "null", "", "Checkpoints by DataStates", kNotYet, "use dslaunch.save"},
    {"datastates_ckpt.host_cache_size", kInt, "null", ">0", "Gigabytes of host memory", kNotYet, "use dslaunch.save"},
    {"datastates_ckpt.parser_threads", kInt, "null", ">0", "Threads", kNotYet, "use dslaunch.save"},
};
// clang-format on

}  // namespace

std::span<const KeySpec> feature_keys() {
    return kFeatureKeys;
}

}  // namespace dslaunch::config
