// The table's part on monitors, profilers, elasticity, autotuning and data curricula.
#include "config/schema/schema_tables.h"

namespace dslaunch::config {
namespace {

using enum KeyType;
using enum KeyStatus;

constexpr const char* kNoDataEfficiency = "data efficiency is not available yet in this version";
constexpr const char* kNoQuantizeTraining =
    "quantization is not available in this version, and DeepSpeed has removed this section: remove "
    "the key";
constexpr const char* kNoAutotuning = "autotuning is not available yet in this version";
constexpr const char* kNoSparseAttention = "sparse attention is not available in this version";
constexpr const char* kNoElasticity = "elastic training is not available yet in this version";
constexpr const char* kNoCurriculum = "curriculum learning is not available yet in this version";
constexpr const char* kNoComet = "Comet is not available: metrics.jsonl has every step";
constexpr const char* kNoEigenvalues = "eigenvalues are not available in this version";
constexpr const char* kNoHybridEngine = "RLHF's hybrid engine is not planned";
constexpr const char* kNoProfiler =
    "the profiler is not available yet in this version: metrics.jsonl has tflops, `dslaunch plan` "
    "FLOPs";
constexpr const char* kNoWandb = "Weights & Biases is not available: metrics.jsonl has every step";
constexpr const char* kNoTensorBoard =
    "TensorBoard files are not available yet in this version: metrics.jsonl has every step";
constexpr const char* kNoCsv = "not available yet in this version: metrics.jsonl has every step";
constexpr const char* kNoLayerDrop = "progressive layer drop is not available in this version";
constexpr const char* kGrowths = "fixed_linear|fixed_root|fixed_discrete|custom|null";

// clang-format off
constexpr KeySpec kServiceKeys[] = {
    {"hybrid_engine", kObject, "null", "", "Training and generation in one engine", kNotYet, kNoHybridEngine},
    {"hybrid_engine.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoHybridEngine},
    {"hybrid_engine.max_out_tokens", kInt, "512", ">0", "Longest output", kNotYet, kNoHybridEngine},
    {"hybrid_engine.inference_tp_size", kInt, "1", ">0", "Ranks of generation", kNotYet, kNoHybridEngine},
    {"hybrid_engine.release_inference_cache", kBool, "false", "", "Free the cache", kNotYet, kNoHybridEngine},
    {"hybrid_engine.pin_parameters", kBool, "true", "", "Pin parameters", kNotYet, kNoHybridEngine},
    {"hybrid_engine.tp_gather_partition_size", kInt, "8", ">0", "Parameters gathered at once", kNotYet, kNoHybridEngine},
    {"hybrid_engine.enable_cuda_graph", kBool, "false", "", "CUDA graphs", kNotYet, kNoHybridEngine},
    {"tensorboard", kObject, "null", "", "TensorBoard", kWithoutEffect, kNoTensorBoard},
    {"tensorboard.enabled", kBool, "false", "", "Turn it on", kWithoutEffect, kNoTensorBoard},
    {"tensorboard.output_path", kString, "null", "", "Folder", kWithoutEffect, kNoTensorBoard},
    {"tensorboard.job_name", kString, "DeepSpeedJobName", "", "Name of the job", kWithoutEffect, kNoTensorBoard},
    {"wandb", kObject, "null", "", "Weights & Biases", kWithoutEffect, kNoWandb},
    {"wandb.enabled", kBool, "false", "", "Turn it on", kWithoutEffect, kNoWandb},
    {"wandb.group", kString, "null", "", "Group", kWithoutEffect, kNoWandb},
    {"wandb.team", kString, "null", "", "Team", kWithoutEffect, kNoWandb},
    {"wandb.project", kString, "deepspeed", "", "Project", kWithoutEffect, kNoWandb},
    {"csv_monitor", kObject, "null", "", "CSV files", kWithoutEffect, kNoCsv},
    {"csv_monitor.enabled", kBool, "false", "", "Turn it on", kWithoutEffect, kNoCsv},
    {"csv_monitor.output_path", kString, "null", "", "Folder", kWithoutEffect, kNoCsv},
    {"csv_monitor.job_name", kString, "DeepSpeedJobName", "", "Name of the job", kWithoutEffect, kNoCsv},
    {"comet", kObject, "null", "", "Comet", kWithoutEffect, kNoComet},
    {"comet.enabled", kBool, "false", "", "Turn it on", kWithoutEffect, kNoComet},
    {"comet.samples_log_interval", kInt, "100", ">0", "Samples between events", kWithoutEffect, kNoComet},
    {"comet.workspace", kString, "null", "", "Workspace", kWithoutEffect, kNoComet},
    {"comet.project", kString, "null", "", "Project", kWithoutEffect, kNoComet},
    {"comet.experiment_name", kString, "null", "", "Name", kWithoutEffect, kNoComet},
    {"comet.api_key", kString, "null", "", "Key of the service", kWithoutEffect, kNoComet},
    {"comet.experiment_key", kString, "null", "", "Key of the experiment", kWithoutEffect, kNoComet},
    {"comet.mode", kString, "null", "get|create|get_or_create|null", "How the experiment is opened", kWithoutEffect, kNoComet},
    {"comet.online", kBool, "null", "", "Send at once", kWithoutEffect, kNoComet},
    {"flops_profiler", kObject, "null", "", "FLOPs by module", kWithoutEffect, kNoProfiler},
    {"flops_profiler.enabled", kBool, "false", "", "Turn it on", kWithoutEffect, kNoProfiler},
    {"flops_profiler.recompute_fwd_factor", kFloat, "0.0", ">=0", "Share of forward that is computed again", kWithoutEffect, kNoProfiler},
    {"flops_profiler.profile_step", kInt, "1", ">=0", "Step to profile", kWithoutEffect, kNoProfiler},
    {"flops_profiler.module_depth", kInt, "-1", "", "Depth of the report", kWithoutEffect, kNoProfiler},
    {"flops_profiler.top_modules", kInt, "1", ">0", "Modules shown", kWithoutEffect, kNoProfiler},
    {"flops_profiler.detailed", kBool, "true", "", "Whole report", kWithoutEffect, kNoProfiler},
    {"flops_profiler.output_file", kString, "null", "", "File of the report", kWithoutEffect, kNoProfiler},
    {"comms_logger", kObject, "null", "", "Log of communication"},
    {"comms_logger.enabled", kBool, "false", "", "At the end, a table of what ranks exchanged: times, bytes and rates by operation and size; no operation is waited for"},
    {"comms_logger.verbose", kBool, "false", "", "After each step, a line for every operation too"},
    {"comms_logger.prof_all", kBool, "true", "", "All operations; false: those of prof_ops"},
    {"comms_logger.debug", kBool, "false", "", "Lines name the bucket or part, the micro step and the lane"},
    {"comms_logger.prof_ops", kStrings, "[]", "", "Operations: reduce, gather, norm, stage, tensor, control, or DeepSpeed's names such as all_reduce"},
    {"elasticity", kObject, "null", "", "Batch sizes for a changing number of ranks", kNotYet, kNoElasticity},
    {"elasticity.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoElasticity},
    {"elasticity.max_train_batch_size", kInt, "2000", ">0", "Largest batch", kNotYet, kNoElasticity},
    {"elasticity.micro_batch_sizes", kList, "[2, 4, 6]", "", "Micro batches to choose from", kNotYet, kNoElasticity},
    {"elasticity.min_gpus", kInt, "1", ">0", "Fewest ranks", kNotYet, kNoElasticity},
    {"elasticity.max_gpus", kInt, "10000", ">0", "Most ranks", kNotYet, kNoElasticity},
    {"elasticity.min_time", kInt, "0", ">=0", "Minutes between changes", kNotYet, kNoElasticity},
    {"elasticity.prefer_larger_batch", kBool, "true", "", "Prefer the larger batch", kNotYet, kNoElasticity},
    another_name("elasticity.prefer_large_batch", "elasticity.prefer_larger_batch", "Documented name of prefer_larger_batch"),
    {"elasticity.ignore_non_elastic_batch_info", kBool, "false", "", "Ignore the other batch keys", kNotYet, kNoElasticity},
    {"elasticity.num_gpus_per_node", kInt, "1", ">0", "Ranks of a node", kNotYet, kNoElasticity},
    {"elasticity.model_parallel_size", kInt, "1", ">0", "Ranks of a model", kNotYet, kNoElasticity},
    {"elasticity.version", kFloat, "0.2", ">0", "Version of the algorithm", kNotYet, kNoElasticity},
    {"autotuning", kObject, "null", "", "Search for the fastest config", kNotYet, kNoAutotuning},
    {"autotuning.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoAutotuning},
    {"autotuning.results_dir", kString, "autotuning_results", "", "Folder of results", kNotYet, kNoAutotuning},
    {"autotuning.exps_dir", kString, "autotuning_exps", "", "Folder of trials", kNotYet, kNoAutotuning},
    {"autotuning.overwrite", kBool, "true", "", "Write over earlier results", kNotYet, kNoAutotuning},
    {"autotuning.metric", kString, "throughput", "latency|throughput|flops|FLOPS", "What is to be best", kNotYet, kNoAutotuning},
    {"autotuning.start_profile_step", kInt, "3", ">=0", "First step measured", kNotYet, kNoAutotuning},
    {"autotuning.end_profile_step", kInt, "5", ">=0", "Last step measured", kNotYet, kNoAutotuning},
    {"autotuning.fast", kBool, "true", "", "Tune fewer values", kNotYet, kNoAutotuning},
    {"autotuning.max_train_batch_size", kInt, "null", ">0", "Largest batch", kNotYet, kNoAutotuning},
    {"autotuning.min_train_batch_size", kInt, "1", ">0", "Smallest batch", kNotYet, kNoAutotuning},
    {"autotuning.max_train_micro_batch_size_per_gpu", kInt, "1024", ">0", "Largest micro batch", kNotYet, kNoAutotuning},
    {"autotuning.min_train_micro_batch_size_per_gpu", kInt, "1", ">0", "Smallest micro batch", kNotYet, kNoAutotuning},
    {"autotuning.mp_size", kInt, "1", ">0", "Ranks of a model", kNotYet, kNoAutotuning},
    {"autotuning.num_tuning_micro_batch_sizes", kInt, "3", ">0", "Micro batches tried", kNotYet, kNoAutotuning},
    {"autotuning.tuner_type", kString, "gridsearch", "gridsearch|random|model_based", "How the search goes", kNotYet, kNoAutotuning},
    {"autotuning.tuner_early_stopping", kInt, "5", ">0", "Trials without gain before it ends", kNotYet, kNoAutotuning},
    {"autotuning.tuner_num_trials", kInt, "50", ">0", "Most trials", kNotYet, kNoAutotuning},
    {"autotuning.arg_mappings", kFree, "null", "", "Script's arguments for the keys", kNotYet, kNoAutotuning},
    {"autotuning.model_info", kFree, "null", "", "What is known of the model", kNotYet, kNoAutotuning},
    {"autotuning.model_info_path", kString, "null", "", "File of model_info", kNotYet, kNoAutotuning},
    {"autotuning.zero_optimization", kFree, "null", "", "Values of zero_optimization to try", kNotYet, kNoAutotuning},
    {"quantize_training", kFree, "null", "", "Quantization while training (old section)", kNotYet, kNoQuantizeTraining},
    {"eigenvalue", kObject, "null", "", "Eigenvalues of the Hessian for quantization", kNotYet, kNoEigenvalues},
    {"eigenvalue.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoEigenvalues},
    {"eigenvalue.verbose", kBool, "false", "", "Print them", kNotYet, kNoEigenvalues},
    {"eigenvalue.max_iter", kInt, "100", ">0", "Most iterations", kNotYet, kNoEigenvalues},
    {"eigenvalue.tol", kFloat, "0.01", ">0", "Tolerance", kNotYet, kNoEigenvalues},
    {"eigenvalue.stability", kFloat, "1e-6", ">=0", "Guard of the division", kNotYet, kNoEigenvalues},
    {"eigenvalue.gas_boundary_resolution", kInt, "1", ">0", "Steps between computations", kNotYet, kNoEigenvalues},
    {"eigenvalue.layer_name", kString, "bert.encoder.layer", "", "Name of the layers", kNotYet, kNoEigenvalues},
    {"eigenvalue.layer_num", kInt, "0", ">=0", "Number of layers", kNotYet, kNoEigenvalues},
    {"progressive_layer_drop", kObject, "null", "", "Drop layers while training", kNotYet, kNoLayerDrop},
    {"progressive_layer_drop.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoLayerDrop},
    {"progressive_layer_drop.theta", kFloat, "1.0", "0..1", "Part of layers kept in the end", kNotYet, kNoLayerDrop},
    {"progressive_layer_drop.gamma", kFloat, "0.001", ">=0", "Speed of the change", kNotYet, kNoLayerDrop},
    {"curriculum_learning", kObject, "null", "", "Easier samples first (old section)", kNotYet, kNoCurriculum},
    {"curriculum_learning.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCurriculum},
    {"curriculum_learning.curriculum_type", kString, "seqlen", "", "Measure of difficulty", kNotYet, kNoCurriculum},
    {"curriculum_learning.min_difficulty", kInt, "null", ">0", "First difficulty", kNotYet, kNoCurriculum},
    {"curriculum_learning.max_difficulty", kInt, "null", ">0", "Last difficulty", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_type", kString, "null", kGrowths, "How it grows", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_config", kObject, "null", "", "Parameters of the growth", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_config.total_curriculum_step", kInt, "null", ">0", "Steps of the growth", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_config.difficulty_step", kInt, "null", ">0", "Smallest change", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_config.root_degree", kInt, "null", ">0", "Degree of fixed_root", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_config.difficulty", kList, "null", "", "Difficulties of fixed_discrete", kNotYet, kNoCurriculum},
    {"curriculum_learning.schedule_config.max_step", kList, "null", "", "Last steps of fixed_discrete", kNotYet, kNoCurriculum},
    {"data_efficiency", kObject, "null", "", "Choice of samples and tokens", kNotYet, kNoDataEfficiency},
    {"data_efficiency.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoDataEfficiency},
    {"data_efficiency.seed", kInt, "1234", ">=0", "Seed", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing", kObject, "null", "", "Choice of tokens", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd", kObject, "null", "", "Random layer-token drop", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.total_layer_num", kInt, "null", ">0", "Layers", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_layer_num", kInt, "null", ">0", "Layers that drop", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_layer_id", kList, "null", "", "Their numbers", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.model_mask_name", kString, "null", "", "Argument with the mask", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.model_type", kString, "null", "encoder|decoder|null", "Kind of model", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.hidden_state_order", kString, "null", "batch_seq_dim|seq_batch_dim|null", "Order of dimensions", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule", kObject, "null", "", "Growth of the sequence", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.min_value", kInt, "null", ">0", "First length", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.max_value", kInt, "null", ">0", "Last length", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_type", kString, "null", "", "How it grows", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config", kObject, "null", "", "Parameters of the growth", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.require_steps", kInt, "null", ">0", "Steps of the growth", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step", kInt, "null", ">0", "Growth of one step", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.layer_token_lr_schedule", kObject, "null", "", "Learning rate by tokens", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_routing.random_ltd.layer_token_lr_schedule.*", kFree, "null", "", "Parameters of it", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling", kObject, "null", "", "Choice of samples", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.num_epochs", kInt, "1000", ">0", "Epochs", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.num_workers", kInt, "0", ">=0", "Loader processes", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.pin_memory", kBool, "false", "", "Page-locked buffers", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning", kObject, "null", "", "Easier samples first", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.data_cluster_path", kString, "null", "", "Folder of the index", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics", kObject, "null", "", "Measures of difficulty", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*", kObject, "null", "", "One measure", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.index_to_sample_path", kString, "null", "", "Index of samples", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.index_to_metric_path", kString, "null", "", "Index of the measure", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.difficulty_type", kString, "null", "value|percentile|null", "Kind of difficulty", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.clustering_type", kString, "null", "schedule_based|single_cluster|null", "Kind of clusters", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.min_difficulty", kInt, "null", ">0", "First difficulty", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.max_difficulty", kInt, "null", ">0", "Last difficulty", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_type", kString, "null", kGrowths, "How it grows", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config", kObject, "null", "", "Parameters of the growth", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.total_curriculum_step", kInt, "null", ">0", "Steps of the growth", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.difficulty_step", kInt, "null", ">0", "Smallest change", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.root_degree", kInt, "null", ">0", "Degree of fixed_root", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.difficulty", kList, "null", "", "Difficulties of fixed_discrete", kNotYet, kNoDataEfficiency},
    {"data_efficiency.data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.max_step", kList, "null", "", "Last steps of fixed_discrete", kNotYet, kNoDataEfficiency},
    {"sparse_attention", kObject, "null", "", "Sparse attention", kNotYet, kNoSparseAttention},
    {"sparse_attention.mode", kString, "fixed", "dense|fixed|variable|bigbird|bslongformer|local_sliding_window", "Pattern", kNotYet, kNoSparseAttention},
    {"sparse_attention.block", kInt, "16", ">0", "Block size", kNotYet, kNoSparseAttention},
    {"sparse_attention.different_layout_per_head", kBool, "false", "", "A pattern for each head", kNotYet, kNoSparseAttention},
    {"sparse_attention.num_local_blocks", kInt, "4", ">0", "Blocks of a window", kNotYet, kNoSparseAttention},
    {"sparse_attention.num_global_blocks", kInt, "1", ">0", "Blocks seen by all", kNotYet, kNoSparseAttention},
    {"sparse_attention.attention", kString, "bidirectional", "bidirectional|unidirectional", "Direction", kNotYet, kNoSparseAttention},
    {"sparse_attention.horizontal_global_attention", kBool, "false", "", "Global blocks see all", kNotYet, kNoSparseAttention},
    {"sparse_attention.num_different_global_patterns", kInt, "1", ">0", "Patterns of global blocks", kNotYet, kNoSparseAttention},
    {"sparse_attention.num_random_blocks", kInt, "0", ">=0", "Random blocks", kNotYet, kNoSparseAttention},
    {"sparse_attention.local_window_blocks", kList, "[4]", "", "Windows", kNotYet, kNoSparseAttention},
    {"sparse_attention.global_block_indices", kList, "[0]", "", "Global blocks", kNotYet, kNoSparseAttention},
    {"sparse_attention.global_block_end_indices", kList, "null", "", "Ends of global blocks", kNotYet, kNoSparseAttention},
    {"sparse_attention.num_sliding_window_blocks", kInt, "3", ">0", "Blocks of a sliding window", kNotYet, kNoSparseAttention},
};
// clang-format on

}  // namespace

std::span<const KeySpec> service_keys() {
    return kServiceKeys;
}

}  // namespace dslaunch::config
