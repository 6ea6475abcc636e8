// The table's part on batches, optimizer, learning rate, precision and single switches.
#include "config/schema/schema_tables.h"

namespace dslaunch::config {
namespace {

using enum KeyType;
using enum KeyStatus;

constexpr const char* kNotAvailable = "not available yet in this version";
constexpr const char* kNoApex = "Apex is not used: use bf16 or fp16";
constexpr const char* kNoAutocastSection =
    "use bf16 or fp16: both run under autocast, with fp32 master weights; weights that stay fp32 "
    "in the forward pass are not available yet in this version";
constexpr const char* kAlwaysFused = "updates are always fused";
constexpr const char* kActivationsStay =
    "activations stay where they were computed in this version; number_checkpoints keeps fewer";
constexpr const char* kOwnLinks = "hosts exchange over dslaunch's own links";
constexpr const char* kWithMoments =
    "adam|adamw|lamb|onebitadam|onebitlamb|zerooneadam|muadam|muadamw|lion|muon";
constexpr const char* kWithEps =
    "adam|adamw|lamb|adagrad|adafactor|onebitadam|onebitlamb|zerooneadam|muadam|muadamw|muon";

// clang-format off
constexpr KeySpec kTrainingKeys[] = {
    {"train_batch_size", kInt, "null", ">0", "Samples per optimizer step over all ranks"},
    {"train_micro_batch_size_per_gpu", kInt, "null", ">0", "Samples per forward and backward of one rank"},
    {"gradient_accumulation_steps", kInt, "null", ">0", "Micro steps per optimizer step"},
    {"managed_gradient_accumulation", kBool, "true", "", "Accumulation is counted by the runtime", kNotYet, "dslaunch always counts micro steps itself: remove the key"},
    {"steps_per_print", kInt, "10", ">0", "Optimizer steps between progress lines"},
    {"gradient_clipping", kFloat, "0.0", ">=0", "Global L2 norm that gradients are clipped to, 0: off"},
    {"wall_clock_breakdown", kBool, "false", "", "With each progress line the log says where the time of the steps went: forward, backward, reduce, update, waiting"},
    {"memory_breakdown", kBool, "false", "", "Memory report after each phase", kWithoutEffect, "not available yet in this version: metrics.jsonl has rss_bytes and peak_rss_bytes"},
    {"dump_state", kBool, "false", "", "Print the state after initialisation", kWithoutEffect, "use `dslaunch plan`, which prints it without a run"},
    {"prescale_gradients", kBool, "false", "", "Divide gradients before the reduction", kWithoutEffect, "sums are in fp32, where they do not overflow, and the mean is applied once"},
    {"gradient_predivide_factor", kFloat, "1.0", ">0", "Factor of prescale_gradients", kWithoutEffect, "sums are in fp32, where they do not overflow, and the mean is applied once"},
    {"gradient_allreduce_op", kString, "mean", "mean|sum", "How gradients of the ranks are joined", kNotYet, "only mean is available in this version"},
    {"communication_data_type", kString, "null", "fp16|bf16|fp32|null", "Type that gradients travel in: fp32 in this version"},
    {"seq_parallel_communication_data_type", kString, "fp32", "fp16|bf16|fp32", "Type that sequence parallel travels in", kWithoutEffect, "values travel in the type they are computed in"},
    {"sparse_gradients", kBool, "false", "", "Reduce embedding gradients as sparse rows", kNotYet, kNotAvailable},
    another_name("sparse_gradients_enabled", "sparse_gradients", "Another name of sparse_gradients"),
    {"disable_allgather", kBool, "false", "", "Broadcast in place of all-gather", kWithoutEffect, "ranks of a host share memory and gather nothing"},
    {"zero_allow_untested_optimizer", kBool, "false", "", "Let ZeRO take any optimizer", kWithoutEffect, "every optimizer here is tested with every stage"},
    {"zero_force_ds_cpu_optimizer", kBool, "true", "", "Insist on DeepSpeed's CPU optimizer with offload", kWithoutEffect, "there is one CPU optimizer"},
    {"graph_harvesting", kBool, "false", "", "CUDA graphs of the update", kNotYet, kNotAvailable},
    {"dataloader_drop_last", kBool, "false", "", "Drop a last short batch", kWithoutEffect, "data repeat until the last step, no batch is short"},
    {"use_data_before_expert_parallelism", kBool, "false", "", "Order of data and expert groups", kNotYet, "expert parallelism is not available yet in this version"},
    {"log_level", kString, "null", "", "Level of DeepSpeed's own log", kWithoutEffect, "use dslaunch's own log options"},
    {"train_batch_size_per_gpu", kInt, "null", ">0", "Old name of train_micro_batch_size_per_gpu", kNotYet, "use train_micro_batch_size_per_gpu"},
    {"vocabulary_size", kInt, "null", ">0", "Size of the vocabulary, for sparse gradients", kWithoutEffect, "read from the model"},
    {"disable_logging", kBool, "false", "", "Turn DeepSpeed's log off", kWithoutEffect, "use dslaunch's own log options"},
    another_name("sequence_parallel_size", "dslaunch.sequence.size", "Another name of dslaunch.sequence.size"),
    {"optimizer", kObject, "null", "", "The optimizer"},
    {"optimizer.type", kString, "null", "", "Adam, AdamW, SGD, Adagrad, Lion, Lamb, Muon, Adafactor, OneBitAdam, ZeroOneAdam, OneBitLamb (others are known and not available yet)"},
    {"optimizer.legacy_fusion", kBool, "false", "", "Old fusion of optimizer and fp16", kWithoutEffect, kAlwaysFused},
    {"optimizer.params", kObject, "null", "", "The optimizer's parameters"},
    {"optimizer.params.lr", kFloat, "1e-3", ">=0", "Learning rate before the scheduler (Adagrad: 1e-2)"},
    {"optimizer.params.betas", kList, "[0.9, 0.999]", "", "Decay of the two moments; Lion's two mixtures of its one", kSupported, "", kWithMoments},
    {"optimizer.params.eps", kFloats, "1e-8", ">=0", "Added to the root of the second moment (Adagrad: 1e-10); Adafactor: two, [1e-30, 1e-3]", kSupported, "", kWithEps},
    {"optimizer.params.weight_decay", kFloat, "0.0", ">=0", "Weight decay (AdamW with torch_adam: 0.01)"},
    {"optimizer.params.bias_correction", kBool, "true", "", "Correct the moments' start at zero", kSupported, "", "adam|adamw|lamb|onebitadam|onebitlamb|zerooneadam|muadam|muadamw"},
    {"optimizer.params.torch_adam", kBool, "false", "", "torch.optim's Adam in place of the fused one: its default weight decay with AdamW", kSupported, "", "adam|adamw"},
    {"optimizer.params.adam_w_mode", kBool, "true", "", "Decoupled weight decay", kSupported, "", "adam|adamw"},
    {"optimizer.params.amsgrad", kBool, "false", "", "Keep the largest second moment", kNotYet, kNotAvailable, "adam|adamw|lamb|onebitadam|onebitlamb|zerooneadam"},
    {"optimizer.params.fused", kBool, "null", "", "torch.optim's fused kernels", kWithoutEffect, kAlwaysFused, "adam|adamw|sgd|adagrad"},
    {"optimizer.params.foreach", kBool, "null", "", "torch.optim's multi-tensor kernels", kWithoutEffect, kAlwaysFused, "adam|adamw|sgd"},
    {"optimizer.params.momentum", kFloat, "0.0", "0..1", "Momentum", kSupported, "", "sgd|musgd|muon"},
    {"optimizer.params.dampening", kFloat, "0.0", "0..1", "Part of the gradient kept out of the momentum", kSupported, "", "sgd|musgd"},
    {"optimizer.params.nesterov", kBool, "false", "", "Nesterov momentum", kSupported, "", "sgd|musgd"},
    {"optimizer.params.maximize", kBool, "false", "", "Climb in place of descend", kSupported, "", "sgd|adam|adamw|adagrad"},
    {"optimizer.params.freeze_step", kInt, "100000", ">=0", "Updates with gradients in full, before momenta are exchanged in 1 bit", kSupported, "", "onebitadam|onebitlamb"},
    {"optimizer.params.cuda_aware", kBool, "false", "", "MPI can read device memory", kWithoutEffect, kOwnLinks, "onebitadam|onebitlamb|zerooneadam"},
    {"optimizer.params.comm_backend_name", kString, "nccl", "nccl|mpi|compressed|hccl", "Who moves what is compressed", kWithoutEffect, kOwnLinks, "onebitadam|onebitlamb|zerooneadam"},
    {"optimizer.params.var_freeze_step", kInt, "100000", ">=0", "Hosts step on their own from the next update but one on, and the variance stays", kSupported, "", "zerooneadam"},
    {"optimizer.params.var_update_scaler", kInt, "16", ">0", "Exact updates before the interval between them doubles", kSupported, "", "zerooneadam"},
    {"optimizer.params.local_step_scaler", kInt, "32678", ">0", "Updates of hosts on their own before the interval between their meetings doubles", kSupported, "", "zerooneadam"},
    {"optimizer.params.local_step_clipper", kInt, "16", ">0", "The longest such interval", kSupported, "", "zerooneadam"},
    {"optimizer.params.max_coeff", kFloat, "10.0", ">=0", "LAMB: the largest ratio of a tensor's norm to its update's", kSupported, "", "lamb|onebitlamb"},
    {"optimizer.params.min_coeff", kFloat, "0.01", ">=0", "LAMB: the least ratio of a tensor's norm to its update's", kSupported, "", "lamb|onebitlamb"},
    {"optimizer.params.eps_inside_sqrt", kBool, "false", "", "LAMB: eps is added under the root", kNotYet, kNotAvailable, "lamb|onebitlamb"},
    {"optimizer.params.max_grad_norm", kFloat, "0.0", ">=0", "Clipping inside the optimizer", kNotYet, "use gradient_clipping", "adam|adamw|lamb|onebitadam|onebitlamb|zerooneadam"},
    {"optimizer.params.coeff_beta", kFloat, "0.9", "0..1", "Decay of the mean of a tensor's ratios, which is kept once momenta are exchanged in 1 bit", kSupported, "", "onebitlamb"},
    {"optimizer.params.factor_max", kFloat, "4.0", ">0", "That mean is multiplied by a factor: its largest value", kSupported, "", "onebitlamb"},
    {"optimizer.params.factor_min", kFloat, "0.5", ">0", "Its least value", kSupported, "", "onebitlamb"},
    {"optimizer.params.factor_threshold", kFloat, "0.1", ">0", "The largest part by which it changes in an update", kSupported, "", "onebitlamb"},
    {"optimizer.params.clip_threshold", kFloat, "1.0", ">0", "Updates whose root of the mean square is above it are scaled to it", kSupported, "", "adafactor"},
    {"optimizer.params.decay_rate", kFloat, "-0.8", "", "Update t keeps 1 - t^decay_rate of the second moment; negative", kSupported, "", "adafactor"},
    {"optimizer.params.beta1", kFloat, "null", "0..1", "Decay of a first moment; null: there is none", kSupported, "", "adafactor"},
    {"optimizer.params.scale_parameter", kBool, "true", "", "A tensor's rate is multiplied by its root of the mean square", kSupported, "", "adafactor"},
    {"optimizer.params.relative_step", kBool, "true", "", "The rate is min(0.01, 1 / sqrt(t)) in update t; needs lr and scheduler absent", kSupported, "", "adafactor"},
    {"optimizer.params.warmup_init", kBool, "false", "", "With relative_step: the rate begins at 1e-6 * t", kSupported, "", "adafactor"},
    {"optimizer.params.muon_lr", kFloat, "null", ">=0", "Learning rate of hidden matrices; null: lr, or 0.02 without it", kSupported, "", "muon"},
    {"optimizer.params.adam_lr", kFloat, "null", ">=0", "Learning rate of all else, which AdamW updates; null: lr, or 3e-4 without it", kSupported, "", "muon"},
    {"optimizer.params.ns_method", kString, "gram", "gram|standard", "Matrices are made orthogonal by products of themselves, or of their Gram matrix", kSupported, "", "muon"},
    {"optimizer.params.lr_decay", kFloat, "0.0", ">=0", "Update u of a parameter has the rate lr / (1 + (u - 1) * lr_decay)", kSupported, "", "adagrad"},
    {"optimizer.params.initial_accumulator_value", kFloat, "0.0", ">=0", "Start of the sum of squares", kSupported, "", "adagrad"},
    {"scheduler", kObject, "null", "", "The learning rate over the steps, absent: constant"},
    {"scheduler.type", kString, "null", "", "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest; or as transformers has them: Linear, Cosine, WSD"},
    {"scheduler.params", kObject, "null", "", "The scheduler's parameters"},
    {"scheduler.params.warmup_min_lr", kFloat, "0.0", ">=0", "Rate at the start", kSupported, "", "warmuplr|warmupdecaylr"},
    {"scheduler.params.warmup_max_lr", kFloat, "0.001", ">=0", "Rate after the warm-up (WarmupLR: default optimizer.params.lr)", kSupported, "", "warmuplr|warmupdecaylr"},
    {"scheduler.params.warmup_num_steps", kInt, "1000", ">=0", "Steps of the warm-up, at least 2 (transformers': 0)", kSupported, "", "warmuplr|warmupdecaylr|warmupcosinelr|linear|cosine|wsd"},
    {"scheduler.params.warmup_type", kString, "log", "log|linear", "Shape of the warm-up", kSupported, "", "warmuplr|warmupdecaylr|warmupcosinelr"},
    {"scheduler.params.total_num_steps", kInt, "null", ">0", "Step at which the decay ends", kSupported, "", "warmupdecaylr|warmupcosinelr|linear|cosine|wsd"},
    {"scheduler.params.warmup_min_ratio", kFloat, "0.0", "0..1", "Start of the warm-up as a part of the rate", kSupported, "", "warmupcosinelr"},
    {"scheduler.params.cos_min_ratio", kFloat, "0.0001", "0..1", "End of the cosine as a part of the rate", kSupported, "", "warmupcosinelr"},
    {"scheduler.params.min_ratio", kFloat, "0.0", "0..1", "End of the decay as a part of the rate; WSD: start of the warm-up too", kSupported, "", "linear|cosine|wsd"},
    {"scheduler.params.decay_num_steps", kInt, "null", ">0", "Steps of the decay, the last ones; null: a tenth of total_num_steps", kSupported, "", "wsd"},
    {"scheduler.params.decay_type", kString, "linear", "linear|cosine|1-sqrt", "Shape of the decay", kSupported, "", "wsd"},
    {"scheduler.params.last_batch_iteration", kInt, "-1", "", "Iteration to start from", kNotYet, "`--resume` restores it", "warmuplr|warmupdecaylr|warmupcosinelr|onecycle|lrrangetest"},
    {"scheduler.params.cycle_min_lr", kFloat, "null", ">=0", "Lowest rate of the cycle", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_max_lr", kFloat, "null", ">=0", "Highest rate of the cycle", kSupported, "", "onecycle"},
    {"scheduler.params.decay_lr_rate", kFloat, "0.0", ">=0", "Decay after the cycle", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_first_step_size", kInt, "2000", ">0", "Steps of the rise", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_second_step_size", kInt, "null", ">0", "Steps of the fall", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_first_stair_count", kInt, "0", ">=0", "Stairs of the rise", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_second_stair_count", kInt, "null", ">=0", "Stairs of the fall", kSupported, "", "onecycle"},
    {"scheduler.params.decay_step_size", kInt, "0", ">=0", "Steps of one decay", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_momentum", kBool, "true", "", "Cycle the momentum too", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_min_mom", kFloat, "0.8", "0..1", "Lowest momentum", kSupported, "", "onecycle"},
    {"scheduler.params.cycle_max_mom", kFloat, "0.9", "0..1", "Highest momentum", kSupported, "", "onecycle"},
    {"scheduler.params.decay_mom_rate", kFloat, "0.0", ">=0", "Decay of the momentum", kSupported, "", "onecycle"},
    {"scheduler.params.lr_range_test_min_lr", kFloat, "0.001", ">0", "Lowest rate of the test", kSupported, "", "lrrangetest"},
    {"scheduler.params.lr_range_test_step_size", kInt, "2000", ">0", "Steps of one rate", kSupported, "", "lrrangetest"},
    {"scheduler.params.lr_range_test_step_rate", kFloat, "1.0", ">0", "Growth of the rate", kSupported, "", "lrrangetest"},
    {"scheduler.params.lr_range_test_staircase", kBool, "false", "", "Grow in stairs", kSupported, "", "lrrangetest"},
    {"fp16", kObject, "null", "", "Training in fp16 with a scaled loss; master weights, gradient sums and optimizer state are fp32"},
    {"fp16.enabled", kBool, "false", "", "Turn it on: forward and backward run under autocast on fp16 weights"},
    {"fp16.auto_cast", kBool, "false", "", "Cast the inputs", kWithoutEffect, "autocast casts what each operator takes"},
    {"fp16.loss_scale", kFloat, "0", ">=0", "Fixed loss scale, 0: dynamic"},
    {"fp16.initial_scale_power", kInt, "16", ">=0", "The first dynamic scale is two to this power, at most 127"},
    {"fp16.loss_scale_window", kInt, "1000", ">=0", "Steps without overflow between two doublings of the scale"},
    {"fp16.hysteresis", kInt, "2", ">=0", "Overflows until the scale halves; a doubling refills them"},
    {"fp16.consecutive_hysteresis", kBool, "false", "", "Each step without overflow refills the hysteresis"},
    {"fp16.min_loss_scale", kInt, "1", ">=0", "Smallest dynamic scale: an overflow that would halve it ends the run"},
    {"fp16.fp16_master_weights_and_grads", kBool, "false", "", "Keep master weights in fp16", kWithoutEffect, "master weights and gradient sums are fp32, which is more exact and takes more memory"},
    {"bf16", kObject, "null", "", "Training in bf16; master weights, gradient sums and optimizer state are fp32"},
    {"bf16.enabled", kBool, "false", "", "Turn it on: forward and backward run under autocast on bf16 weights"},
    {"bf16.immediate_grad_update", kBool, "false", "", "Add to the fp32 gradient at once", kWithoutEffect, "gradients are added to fp32 sums as soon as they are complete"},
    {"bf16.check_grad_overflow", kBool, "true", "", "Skip a step whose gradients are not finite; false: such a step ends the run"},
    {"bf16.bf16_master_weights_and_grads", kBool, "false", "", "No fp32 master weights: updates round bf16 weights by drawn numbers (docs/optimizers.md); gradient sums are fp32"},
    {"bf16.bf16_optimizer_states", kBool, "false", "", "Moments in bf16, as dslaunch.optimizer.states: bf16"},
    {"bfloat16", kObject, "null", "", "Old name of bf16"},
    another_name("bfloat16.enabled", "bf16.enabled", "Old name of bf16.enabled"),
    {"amp", kObject, "null", "", "Mixed precision by Apex", kNotYet, kNoApex},
    {"amp.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoApex},
    {"amp.opt_level", kString, "null", "O0|O1|O2|O3", "Apex's level", kNotYet, kNoApex},
    {"amp.*", kFree, "null", "", "Any other parameter of apex.amp.initialize", kNotYet, kNoApex},
    {"torch_autocast", kObject, "null", "", "Mixed precision by torch.autocast", kNotYet, kNoAutocastSection},
    {"torch_autocast.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoAutocastSection},
    {"torch_autocast.dtype", kString, "bfloat16", "bfloat16|float16", "Type of the casted operators", kNotYet, kNoAutocastSection},
    {"torch_autocast.lower_precision_safe_modules", kList, "null", "", "Modules that may run in it", kNotYet, kNoAutocastSection},
    {"data_types", kObject, "null", "", "Types of what is kept"},
    {"data_types.grad_accum_dtype", kString, "null", "fp32|fp16|bf16|null", "Type that gradients are summed in: fp32 in this version"},
    {"data_types.param_dtype", kString, "null", "fp32|fp16|bf16|null", "Type of the weights in forward and backward: what fp16 and bf16 choose"},
    {"data_types.buffer_dtype", kString, "null", "fp32|fp16|bf16|null", "Type of buffers", kNotYet, "buffers keep the types that they have in the model: remove the key"},
    {"activation_checkpointing", kObject, "null", "", "Keep fewer activations, compute them again"},
    {"activation_checkpointing.number_checkpoints", kInt, "null", ">=0", "Groups of segments that keep only their inputs, null or 0: keep everything"},
    {"activation_checkpointing.partition_activations", kBool, "false", "", "Share kept activations among tensor parallel ranks", kWithoutEffect, kActivationsStay},
    {"activation_checkpointing.cpu_checkpointing", kBool, "false", "", "Move kept activations to host memory", kWithoutEffect, kActivationsStay},
    {"activation_checkpointing.contiguous_memory_optimization", kBool, "false", "", "Keep them in one buffer", kWithoutEffect, "kept activations are in arenas already"},
    {"activation_checkpointing.synchronize_checkpoint_boundary", kBool, "false", "", "Synchronise the device at each boundary", kWithoutEffect, "waits are derived from the step plan"},
    {"activation_checkpointing.profile", kBool, "false", "", "Time each checkpoint function", kWithoutEffect, "step times are in metrics.jsonl"},
};
// clang-format on

}  // namespace

std::span<const KeySpec> training_keys() {
    return kTrainingKeys;
}

}  // namespace dslaunch::config
