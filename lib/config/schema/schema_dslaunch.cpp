// The table's part on "dslaunch": what DeepSpeed has no key for.
#include "config/schema/schema_tables.h"

namespace dslaunch::config {
namespace {

using enum KeyType;
using enum KeyStatus;

constexpr const char* kShardDoc =
    "How a bucket is dealt to ranks at ZeRO stages 1 to 3: equal ranges, whole segments, whole "
    "modules, rows of each parameter, whole parameters, or whichever moves and keeps least";
constexpr const char* kScheduleDoc =
    "Order of micro batches; interleaved and zb-v have several parts of the model on a stage, "
    "zb-h1 and zb-v split backwards (docs/scale/pipelines.md)";
constexpr const char* kRulesDoc =
    "Patterns of parameter names and how those are split: column, row, vocabulary or replicated; "
    "the first that fits counts, what none fits is found from the graph";
constexpr const char* kCacheDoc =
    "Which chunk gives up its swap buffer: the first that came, the one used longest ago (the same "
    "in a step), or the one used least, so that all but 4 buffers keep their chunks "
    "(docs/scale/offload.md)";
constexpr const char* kPlacementDoc =
    "What of the offloaded chunks stays in memory: what ratio and max_in_cpu say, or, from step to "
    "step, what was measured says (docs/scale/offload.md)";

constexpr const char* kLossDoc =
    "Which loss, null: forward returns it; dpo, ipo, simpo and orpo learn from pairs of answers "
    "(docs/guide/preferences.md)";

constexpr const char* kBaseDoc =
    "How the weights of the model's own linear layers are held: as they are, or in 8 or 4 bits "
    "(docs/guide/lora.md)";

// clang-format off
constexpr KeySpec kDslaunchKeys[] = {
    {"dslaunch", kObject, "null", "", "What DeepSpeed has no key for"},
    {"dslaunch.data", kObject, "null", "", "The data"},
    {"dslaunch.data.train", kString, "null", "", "File of training data"},
    {"dslaunch.data.eval", kString, "null", "", "File of held-out data"},
    {"dslaunch.data.context", kInt, "null", ">0", "Tokens of a sample"},
    {"dslaunch.data.dtype", kString, "null", "uint16|uint32|int32|int64|null", "Type of a token file, uint16 when unset"},
    {"dslaunch.data.columns", kObject, "null", "", "Argument of forward to column of the file"},
    {"dslaunch.data.columns.*", kString, "null", "", "Name of the column"},
    {"dslaunch.data.shuffle", kBool, "true", "", "Permute samples by seed and epoch"},
    {"dslaunch.data.eval_fraction", kFloat, "0", "0..1", "Part of the samples, at the end, that is held out"},
    {"dslaunch.steps", kInt, "null", ">0", "Optimizer steps to train"},
    {"dslaunch.epochs", kFloat, "null", ">0", "Passes over the training samples, in place of dslaunch.steps; the last step counts whole"},
    {"dslaunch.seed", kInt, "1234", ">=0", "Seed of data order and of every random operator"},
    {"dslaunch.device", kString, "auto", "auto|cpu|cuda", "Where to compute"},
    {"dslaunch.tf32", kBool, "false", "", "On GPUs, products and convolutions in fp32 may round their factors to TF32, as PyTorch does it with allow_tf32"},
    {"dslaunch.op_libraries", kStrings, "null", "", "Libraries (.so) of operators that are loaded before the model, one file or a list"},
    {"dslaunch.loss", kObject, "null", "", "The loss when forward returns an output"},
    {"dslaunch.loss.name", kString, "null", "cross_entropy|mse|l1|bce_with_logits|dpo|ipo|simpo|orpo|null", kLossDoc},
    {"dslaunch.loss.target", kString, "null", "", "Column that holds the target, null: `targets` for pairs of answers, else the one of its type that is left"},
    {"dslaunch.loss.mean", kString, "micro_batch", "micro_batch|token", "Mean over each micro batch, or over the targets of the global batch (by itself for a Hugging Face folder)"},
    {"dslaunch.loss.beta", kFloat, "0.1", ">0", "dpo, ipo, simpo: factor of the difference between the answers' log-probabilities; orpo: weight of the odds"},
    {"dslaunch.loss.label_smoothing", kFloat, "0", "0..1", "dpo: part of the pairs that is taken to be the wrong way round, below 0.5"},
    {"dslaunch.loss.gamma", kFloat, "0.5", ">=0", "simpo: margin by which the chosen answer is to be ahead"},
    {"dslaunch.save", kObject, "null", "", "Checkpoints"},
    {"dslaunch.save.interval", kInt, "null", ">0", "Steps between checkpoints, null: only at the end"},
    {"dslaunch.save.keep", kInt, "null", ">0", "Checkpoints kept, null: all"},
    {"dslaunch.save.async", kBool, "true", "", "Write checkpoints while training goes on"},
    {"dslaunch.save.on_error", kString, "stop", "stop|continue", "What training does when a checkpoint cannot be saved"},
    {"dslaunch.save.via", kString, "shared", "shared|rank0", "Every rank writes to one file system that all hosts share, or rank 0's disk gets all"},
    {"dslaunch.save.time_limit", kInt, "null", ">0", "Seconds after which the job must have saved and ended; null: when Slurm says"},
    {"dslaunch.eval_interval", kInt, "null", ">0", "Steps between evaluations, null: only at the end"},
    {"dslaunch.trace_step", kInt, "null", ">0", "Step whose instructions rank 0 writes to trace.json under --output, null: none"},
    {"dslaunch.broadcast_buffers", kBool, "false", "", "Broadcast buffers from rank 0 at each step"},
    {"dslaunch.average_buffers", kBool, "false", "", "Give buffers (running averages, codebooks) the mean over all ranks after each step"},
    {"dslaunch.communication", kObject, "null", "", "How ranks talk"},
    {"dslaunch.communication.reduce", kString, "once", "once|micro_step", "Reduce once a step or after each micro step; always micro_step at ZeRO stages 2 and 3"},
    {"dslaunch.communication.error_feedback", kBool, "false", "", "Ranks keep what zero_quantized_gradients rounds off and add it to the next gradients, 4 bytes an element that they send"},
    {"dslaunch.communication.streams", kInt, "null", ">0", "Connections of two hosts, shared by their ranks; null: as many as fill it, measured at the start (docs/scale/placement.md); GPUs: unread"},
    {"dslaunch.shard", kString, "flat", "flat|layer|group|row|parameter|auto", kShardDoc},
    {"dslaunch.optimizer", kObject, "null", "", "What of the optimizer differs between parameters"},
    {"dslaunch.optimizer.states", kString, "fp32", "fp32|bf16|int8", "Moments in memory: fp32, rounded to bf16, or to 8 bits in blocks of 256 (docs/reference/optimizers.md)"},
    {"dslaunch.optimizer.decay", kString, "all", "all|matrices", "Parameters that weight decay applies to: all, or those of two and more dimensions, so no norms and biases"},
    {"dslaunch.optimizer.groups", kList, "[]", "", "Parameters with numbers of their own; of several groups that fit a name the first counts"},
    {"dslaunch.optimizer.groups.[].match", kStrings, "null", "", "Names of parameters, `*` for any characters"},
    {"dslaunch.optimizer.groups.[].lr", kFloat, "null", ">=0", "Learning rate; schedules multiply it as they do the optimizer's"},
    {"dslaunch.optimizer.groups.[].weight_decay", kFloat, "null", ">=0", "Weight decay"},
    {"dslaunch.optimizer.groups.[].betas", kList, "null", "", "Decay of the two moments"},
    {"dslaunch.optimizer.groups.[].eps", kFloat, "null", ">=0", "Added to the root of the second moment"},
    {"dslaunch.optimizer.groups.[].muon", kBool, "null", "", "With Muon: true: it updates these matrices, false: AdamW does"},
    {"dslaunch.pipeline", kObject, "null", "", "Pipeline parallelism"},
    {"dslaunch.pipeline.stages", kInt, "1", ">0", "Stages that the model's segments are dealt to; the ranks of each are as many"},
    {"dslaunch.pipeline.schedule", kString, "1f1b", "1f1b|gpipe|interleaved|zb-h1|zb-v", kScheduleDoc},
    {"dslaunch.pipeline.chunks", kInt, "null", ">0", "Parts of the model that a stage has; null: 2 with interleaved and zb-v, else 1"},
    {"dslaunch.pipeline.first_segments", kList, "null", "", "Segments that the parts after the first begin with, stages x chunks - 1 of them; null: chosen by cost"},
    {"dslaunch.tensor", kObject, "null", "", "Tensor parallelism"},
    {"dslaunch.tensor.size", kInt, "1", ">0", "Ranks that share every layer (docs/scale/tensor-parallel.md)"},
    {"dslaunch.tensor.rules", kFree, "null", "", kRulesDoc},
    {"dslaunch.tensor.share_positions", kBool, "false", "", "Each rank computes its share of the positions between the layers that are split"},
    {"dslaunch.tensor.check", kBool, "true", "", "Compare the split graph with the whole one on one batch before training"},
    {"dslaunch.tensor.strict", kBool, "false", "", "Refuse a model of which attention or a layer of a width that does not divide would stay whole"},
    {"dslaunch.sequence", kObject, "null", "", "Sequence parallelism"},
    {"dslaunch.sequence.size", kInt, "1", ">0", "Ranks that share the positions of every sample (docs/scale/tensor-parallel.md)"},
    {"dslaunch.sequence.check", kBool, "true", "", "Compare the split graph with the whole one on one batch before training"},
    {"dslaunch.lora", kObject, "null", "", "Low-rank adapters: they train, and the model's weights do not (docs/guide/lora.md)"},
    {"dslaunch.lora.r", kInt, "8", ">0", "Rank of the adapters"},
    {"dslaunch.lora.alpha", kFloat, "null", ">0", "What an adapter gives is multiplied by alpha / r; null: by 1"},
    {"dslaunch.lora.dropout", kFloat, "0", "0..1", "Dropout of what goes into an adapter"},
    {"dslaunch.lora.rslora", kBool, "false", "", "Multiply by alpha / sqrt(r)"},
    {"dslaunch.lora.targets", kStrings, "null", "", "Linear layers that get an adapter, by pattern or by the end of their names; null: all but the last"},
    {"dslaunch.lora.modules_to_save", kStrings, "null", "", "Modules that train as they are and are saved with the adapters"},
    {"dslaunch.lora.base", kString, "as_is", "as_is|int8|int4|nf4", kBaseDoc},
    {"dslaunch.lora.init", kString, "null", "", "Folder of an adapter to begin with, as PEFT writes it; null: a new one"},
    {"dslaunch.offload", kObject, "null", "", "Offload to nvme: settings that zero_optimization and aio do not have"},
    {"dslaunch.offload.chunk_numel", kInt, "null", ">0", "Elements of optimizer states that pass through memory together, null: the plan chooses"},
    {"dslaunch.offload.placement", kString, "fixed", "fixed|auto", kPlacementDoc},
    {"dslaunch.offload.cache", kString, "fifo", "fifo|lru|lfu", kCacheDoc},
    {"dslaunch.offload.engine", kString, "auto", "auto|io_uring|threads", "How the disk is asked: by io_uring, by threads, or by io_uring where the kernel has it"},
    {"dslaunch.offload.compress", kObject, "null", "", "Fewer bytes for the disk than for memory"},
    {"dslaunch.offload.compress.moments", kString, "none", "none|bf16|int8", "Optimizer states but master copies: fp32, rounded to bf16, or to 8 bits in blocks of 256"},
    {"dslaunch.offload.compress.lossless", kString, "none", "none|zstd", "What is not rounded, compressed without loss"},
};
// clang-format on

}  // namespace

std::span<const KeySpec> dslaunch_keys() {
    return kDslaunchKeys;
}

}  // namespace dslaunch::config
