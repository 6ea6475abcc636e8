// The parts of the run config, each made from its keys. They are called in this order, so that a
// part may read earlier parts. Internal to lib/config.
#pragma once

#include "config/resolve/key_reader.h"

namespace dslaunch::config {

// The keys of a batch.
inline constexpr const char* kTotal = "train_batch_size";
inline constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
inline constexpr const char* kMicroSteps = "gradient_accumulation_steps";

void resolve_pipeline(KeyReader& keys, RunConfig& run);
void resolve_tensor(KeyReader& keys, RunConfig& run);
void resolve_lora(KeyReader& keys, RunConfig& run);
void resolve_batch(KeyReader& keys, RunConfig& run);
void resolve_steps(KeyReader& keys, RunConfig& run);
void resolve_optimizer(KeyReader& keys, RunConfig& run);
void resolve_parameter_groups(KeyReader& keys, RunConfig& run);
void resolve_scheduler(KeyReader& keys, RunConfig& run);
void resolve_precision(KeyReader& keys, RunConfig& run);
void resolve_zero(KeyReader& keys, RunConfig& run);
void resolve_offload(KeyReader& keys, RunConfig& run);
void resolve_wire(KeyReader& keys, RunConfig& run);
// Refuses settings that do not go with an optimizer that compresses.
void check_compression(KeyReader& keys, RunConfig& run);
void resolve_lagging(KeyReader& keys, RunConfig& run);
void resolve_data(KeyReader& keys, RunConfig& run);
void resolve_loss(KeyReader& keys, RunConfig& run);
void resolve_comms_logger(KeyReader& keys, RunConfig& run);
void resolve_training(KeyReader& keys, RunConfig& run);

// resolve_usual.cpp: the usual numbers for tuning a pretrained model.
[[nodiscard]] bool takes_usual_batch(KeyReader& keys);
void usual_batch(KeyReader& keys, RunConfig& run, int64_t ranks);
double take_rate(KeyReader& keys, RunConfig& run);
void usual_clipping(KeyReader& keys, RunConfig& run);
// Warns of a rate far above the usual one.
void check_rate(KeyReader& keys, RunConfig& run);

}  // namespace dslaunch::config
