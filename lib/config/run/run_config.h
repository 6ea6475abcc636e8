// The settings of a run, resolved: every `auto` is a number, every derived value is computed, every
// relation is checked. resolve() (config/resolve/resolve.h) makes it from the user's settings; the
// worker reads this and nothing else. No threads: a value type, const after resolve().
#pragma once

#include "base/kinds/dtype.h"
#include "base/kinds/schedule_kind.h"
#include "base/kinds/shard_kind.h"
#include "base/kinds/traffic_kind.h"
#include "config/run/lagging_config.h"
#include "config/run/lora_config.h"
#include "config/run/offload_config.h"
#include "config/run/optimizer_config.h"
#include "config/run/precision_config.h"
#include "config/run/scheduler_config.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

enum class DeviceChoice { kAuto, kCpu, kCuda };
// The last four are losses of preferences: a sample is a pair of answers, the chosen one first.
enum class LossKind { kModel, kCrossEntropy, kMse, kL1, kBceWithLogits, kDpo, kIpo, kSimPo, kOrpo };
enum class LossMean { kMicroBatch, kToken };
enum class ReduceWhen { kOnce, kMicroStep };

struct BatchConfig {
    int64_t train_rows = 1;          // samples per optimizer step over all ranks
    int64_t micro_rows = 1;          // samples per forward/backward of one rank
    int64_t accumulation_steps = 1;  // micro steps per optimizer step
    int64_t data_parallel_size = 1;  // ranks that have rows of their own, of one stage:
                                     // train_rows == micro_rows * accumulation_steps * it

    bool operator==(const BatchConfig&) const = default;
};

// kAuto: the job decides, from the measured link.
enum class WireChoice { kOff, kOn, kAuto };

// Values that travel between hosts in fewer bits.
struct WireConfig {
    WireChoice parameters = WireChoice::kOff;  // zero_quantized_weights, stage 3
    WireChoice frozen = WireChoice::kOff;      // zero_quantized_nontrainable_weights, stage 3
    WireChoice gradients = WireChoice::kOff;   // zero_quantized_gradients, stages 1 to 3
    bool error_feedback = false;               // dslaunch.communication.error_feedback
    // The type to which gradients are rounded: kF32, kBF16 or kF16. communication_data_type, or the
    // type of torch_autocast.
    DType gradient_dtype = DType::kF32;
    // The classes of modules whose gradients are rounded so; not set: all.
    std::optional<std::vector<std::string>> gradient_modules;
    bool modules_given = false;  // by the config, and not as the default has them
    // The divisor of rounded gradients before they travel, and their factor after; 0: the number of
    // ranks.
    double predivide_factor = 1.0;
    // zero_hpz_partition_size, stage 3: a host's ranks, which keep a copy of gathered parameters;
    // 1: they keep none; 0: they keep one if there are several hosts.
    int64_t host_copy_ranks = 1;

    bool operator==(const WireConfig&) const = default;
};

// Sizes are in elements, as DeepSpeed's are. Values that a stage does not read keep their defaults.
struct ZeroConfig {
    int64_t stage = 0;
    int64_t reduce_bucket_numel = 500'000'000;  // reduce_bucket_size: gradient in one reduction
    // Stages 1 to 3 read these.
    ShardBy shard = ShardBy::kFlat;  // dslaunch.shard
    bool shard_auto = false;  // the kind is chosen to suit the job (plan/choose/shard_choice.h)
    int64_t shard_ranks = 0;  // mics_shard_size: a host's ranks, which hold a copy; 0: all
    WireConfig wire;
    // Stage 3 reads these.
    int64_t prefetch_bucket_numel = 50'000'000;  // elements gathered ahead of use, at most
    int64_t live_numel_max = 1'000'000'000;      // elements gathered at one time, at most
    int64_t reuse_distance_numel_max = 0;        // kept when used again within so many elements
    int64_t persistent_parameter_numel = 0;      // parameters up to it are whole, ...
    // ... as long as those together have no more than this.
    int64_t persistent_numel_max = std::numeric_limits<int64_t>::max();

    bool operator==(const ZeroConfig&) const = default;
};

// The argument, and column, of a preference loss that holds the reference's log-probabilities.
inline constexpr const char* kReferenceArgument = "reference";

struct LossConfig {
    LossKind kind = LossKind::kModel;  // kModel: forward returns the loss
    std::string target;                // column or argument that holds the target
    LossMean mean = LossMean::kMicroBatch;
    double beta = 0.1;             // of preferences: how much a difference of answers counts
    double label_smoothing = 0.0;  // kDpo: the part of pairs that may be the wrong way round
    double gamma = 0.5;            // kSimPo: by how much the chosen answer is to be ahead

    [[nodiscard]] bool is_preference() const {
        return kind == LossKind::kDpo || kind == LossKind::kIpo || kind == LossKind::kSimPo ||
               kind == LossKind::kOrpo;
    }
    // Returns true if the reference model's log-probabilities are an argument beside the target.
    [[nodiscard]] bool needs_reference() const {
        return kind == LossKind::kDpo || kind == LossKind::kIpo;
    }
    // Returns true if the target holds class numbers.
    [[nodiscard]] bool takes_classes() const {
        return kind == LossKind::kCrossEntropy || is_preference();
    }
    bool operator==(const LossConfig&) const = default;
};

struct DataConfig {
    std::string train_path;
    std::string eval_path;                       // empty: none, unless eval_fraction
    int64_t context = 0;                         // tokens per sample, 0: unset
    std::optional<DType> token_dtype;            // kU16, kU32, kI32 or kI64; unset: kU16
    std::map<std::string, std::string> columns;  // forward's argument -> column of the file
    bool shuffle = true;
    double eval_fraction = 0.0;  // part of the samples, taken from the end, that is held out

    bool operator==(const DataConfig&) const = default;
};

struct SaveConfig {
    int64_t interval = 0;      // steps, 0: only at the end
    int64_t keep = 0;          // checkpoints kept, 0: all
    bool async = true;         // written while training goes on
    bool goes_on = false;      // training goes on after a save that failed
    bool via_rank0 = false;    // hosts share no file system: rank 0's disk gets all files
    int64_t time_limit_s = 0;  // the job saves and ends within it, counted from its start; 0: none

    bool operator==(const SaveConfig&) const = default;
};

// dslaunch.pipeline, or DeepSpeed's pipeline.
struct PipelineConfig {
    int64_t stages = 1;
    ScheduleKind schedule = ScheduleKind::k1F1B;
    int64_t chunks = 1;               // parts of the model that a stage has
    std::vector<int> first_segments;  // the parts after the first begin there; empty: chosen by
                                      // cost

    bool operator==(const PipelineConfig&) const = default;
};

// dslaunch.tensor, or the size of DeepSpeed's tensor_parallel.
struct TensorConfig {
    int64_t size = 1;                                        // ranks that share every layer
    std::vector<std::pair<std::string, std::string>> rules;  // pattern of names, word of a rule
    bool share_positions = false;  // ranks share positions between split layers (Megatron's
                                   // sequence)
    bool check = true;             // one batch is compared with the whole graph before training
    bool strict = false;           // a layer that would stay whole for an obstacle is refused

    bool operator==(const TensorConfig&) const = default;
};

// dslaunch.sequence.
struct SequenceConfig {
    int64_t size = 1;  // ranks that share the positions of every sample
    bool check = true;

    bool operator==(const SequenceConfig&) const = default;
};

// comms_logger: operations between ranks, timed by the runs of the plan's instructions.
struct CommsLoggerConfig {
    bool enabled = false;
    bool verbose = false;            // a line for each operation
    bool debug = false;              // lines name the instruction
    std::vector<TrafficKind> kinds;  // those that are logged; empty: all

    bool operator==(const CommsLoggerConfig&) const = default;
};

struct RunConfig {
    LoraConfig lora;
    BatchConfig batch;
    PipelineConfig pipeline;
    TensorConfig tensor;
    SequenceConfig sequence;
    OptimizerConfig optimizer;
    std::vector<ParameterGroup> parameter_groups;  // of several that fit a name the first counts
    MomentFormat states = MomentFormat::kFp32;     // of moments in memory
    bool decays_matrices_only = false;  // tensors of fewer than two dimensions are not decayed
    SchedulerConfig scheduler;
    PrecisionConfig precision;
    ZeroConfig zero;
    OffloadConfig offload;
    LaggingConfig lagging;
    LossConfig loss;
    DataConfig data;
    SaveConfig save;
    ReduceWhen reduce = ReduceWhen::kOnce;  // kMicroStep at ZeRO stages 2 and 3
    int64_t streams = 0;                    // connections between two hosts; 0: measured
    bool adds_ranks = false;                // gradient_allreduce_op: sum, not the mean over ranks
    double gradient_clipping = 0.0;         // global L2 norm, 0: off
    int64_t recompute_groups = 0;  // activation_checkpointing.number_checkpoints; 0: keep every
                                   // activation
    int64_t steps = 0;  // optimizer steps to train; 0: epochs says, once samples are known
    double epochs = 0;  // passes over the training samples, 0: steps says
    uint64_t seed = 1234;
    DeviceChoice device = DeviceChoice::kAuto;
    std::vector<std::string> op_libraries;  // files that are loaded before the model
    bool tf32 = false;  // on GPUs: fp32 products may round their factors to TF32
    bool broadcast_buffers = false;
    bool average_buffers = false;  // at most one of both
    int64_t eval_interval = 0;     // steps between evaluations, 0: only at the end
    int64_t print_interval = 10;   // steps_per_print
    CommsLoggerConfig comms_logger;
    bool wall_clock_breakdown = false;  // each progress line has the times
    int64_t trace_step = 0;             // step of which rank 0 writes a trace, 0: none

    // Returns the ranks that share one copy of the model, and its rows; the others have other rows.
    [[nodiscard]] int64_t ranks_of_copy() const {
        return pipeline.stages * tensor.size * sequence.size;
    }
    bool operator==(const RunConfig&) const = default;
};

}  // namespace dslaunch::config
