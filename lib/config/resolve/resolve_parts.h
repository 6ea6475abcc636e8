// The functions that resolve the parts of the run config. Each function reads its keys from KEYS,
// sets its part of RUN, and records values, notes and problems in KEYS. After a problem, it
// continues with a value that later functions can use. A function can use the parts of RUN that
// earlier functions set; with few exceptions, the functions are called in the order of this file.
// Internal to lib/config.
#pragma once

#include "config/resolve/key_reader.h"

namespace dslaunch::config {

// The keys of a batch.
inline constexpr const char* kTotal = "train_batch_size";
inline constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
inline constexpr const char* kMicroSteps = "gradient_accumulation_steps";

// The key with DeepSpeed's rules for splitting layers among tensor ranks.
inline constexpr const char* kLayerSpecs = "tensor_parallel.partition_config.layer_specs";

// Reads the stages, the schedule and the chunks: `pipeline`, dslaunch.pipeline.
void resolve_pipeline(KeyReader& keys, RunConfig& run);
// Reads the ranks that share layers or positions: dslaunch.tensor, dslaunch.sequence.
void resolve_tensor(KeyReader& keys, RunConfig& run);
// Reads dslaunch.tensor.rules and tensor_parallel.partition_config.
void resolve_tensor_rules(KeyReader& keys, RunConfig& run);
// Returns why TEXT cannot be used as a regular expression; empty if it can.
[[nodiscard]] std::string fault_of_expression(const std::string& text);
// Reads dslaunch.lora.
void resolve_lora(KeyReader& keys, RunConfig& run);
// Computes the missing keys of the batch from the given keys and the number of ranks. If
// `elasticity` is on, it determines all keys of the batch.
void resolve_batch(KeyReader& keys, RunConfig& run);
// Reads `elasticity`. Returns true if it is on: then it determines the batch.
bool resolve_elastic_batch(KeyReader& keys, RunConfig& run);
// Adds a problem if a step has more micro steps than a plan can list.
void check_micro_steps(KeyReader& keys, const RunConfig& run);
// Reads the number of steps, or computes it from the epochs if the number of samples is known.
void resolve_steps(KeyReader& keys, RunConfig& run);
// Reads `optimizer` and dslaunch.optimizer without its groups.
void resolve_optimizer(KeyReader& keys, RunConfig& run);
// Reads dslaunch.optimizer.groups.
void resolve_parameter_groups(KeyReader& keys, RunConfig& run);
// Reads `scheduler`. If its number of steps is `auto`, uses the number of steps of the run.
void resolve_scheduler(KeyReader& keys, RunConfig& run);
// Reads fp16, bf16, torch_autocast and data_types.
void resolve_precision(KeyReader& keys, RunConfig& run);
// Reads zero_optimization without offloading, and dslaunch.shard.
void resolve_zero(KeyReader& keys, RunConfig& run);
// Reads offload_optimizer, offload_param, aio and dslaunch.offload.
void resolve_offload(KeyReader& keys, RunConfig& run);
// Reads the forms in which values travel between hosts.
void resolve_wire(KeyReader& keys, RunConfig& run);
// Refuses settings that cannot be combined with an optimizer that compresses.
void check_compression(KeyReader& keys, RunConfig& run);
// Reads zero_optimization.zenflow.
void resolve_lagging(KeyReader& keys, RunConfig& run);
// Reads dslaunch.data.
void resolve_data(KeyReader& keys, RunConfig& run);
// Reads all that remains: clipping, saving, evaluation, logs, seed, device. Calls the functions for
// the loss, the comms_logger, the monitors and the profilers.
void resolve_training(KeyReader& keys, RunConfig& run);
// Reads compression_training. REQUIRES: all other parts have been resolved.
void resolve_compression(KeyReader& keys, RunConfig& run);
// Reads dslaunch.loss. REQUIRES: resolve_data() has run.
void resolve_loss(KeyReader& keys, RunConfig& run);
// Reads comms_logger.
void resolve_comms_logger(KeyReader& keys, RunConfig& run);
// Reads tensorboard, csv_monitor, wandb, comet and dslaunch.metrics.
void resolve_monitors(KeyReader& keys, RunConfig& run);
// Reads flops_profiler, dslaunch.check_equal_interval and dslaunch.peak_tflops.
void resolve_profilers(KeyReader& keys, RunConfig& run);

// The functions below are defined in resolve_usual.cpp. They apply the usual values for tuning a
// pretrained model.

// Returns true if the model is pretrained and the user gave no key of the batch.
[[nodiscard]] bool takes_usual_batch(KeyReader& keys);
// Sets and records the batch for RANKS ranks that work on different rows. REQUIRES: ranks > 0.
void usual_batch(KeyReader& keys, RunConfig& run, int64_t ranks);
// Returns and records the learning rate: the given one or, for a pretrained model, the usual one.
double take_rate(KeyReader& keys, RunConfig& run);
// Sets and records the usual clipping.
void usual_clipping(KeyReader& keys, RunConfig& run);
// Warns of a learning rate far above the usual one.
void check_rate(KeyReader& keys, RunConfig& run);

}  // namespace dslaunch::config
