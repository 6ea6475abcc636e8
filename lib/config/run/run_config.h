// The settings of a run after resolving: every `auto` is a number, every derived value is computed,
// every relation is checked. resolve() (config/resolve/resolve.h) makes it from the user's
// settings; the worker reads only this. No threads: a value type, const after resolve().
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "base/kinds/eval_metric.h"
#include "base/kinds/schedule_kind.h"
#include "base/kinds/shard_kind.h"
#include "base/kinds/traffic_kind.h"
#include "config/run/compression_config.h"
#include "config/run/lagging_config.h"
#include "config/run/lora_config.h"
#include "config/run/monitor_config.h"
#include "config/run/offload_config.h"
#include "config/run/optimizer_config.h"
#include "config/run/precision_config.h"
#include "config/run/scheduler_config.h"

namespace dslaunch::config {

// kAuto: a GPU if the machine has one that this rank may see.
enum class DeviceChoice { kAuto, kCpu, kCuda };
// The last four are preference losses: a sample is a pair of answers, the chosen answer first.
enum class LossKind { kModel, kCrossEntropy, kMse, kL1, kBceWithLogits, kDpo, kIpo, kSimPo, kOrpo };
// kMicroBatch: the mean of the micro batches' means. kToken: the mean over all targets of a step.
enum class LossMean { kMicroBatch, kToken };
// kOnce: gradients are reduced once in a step. kMicroStep: after each micro step.
enum class ReduceWhen { kOnce, kMicroStep };

// The rows of a step and the parts in which ranks compute them.
struct BatchConfig {
    int64_t train_rows = 1;          // samples per optimizer step over all ranks
    int64_t micro_rows = 1;          // samples per forward/backward of one rank
    int64_t accumulation_steps = 1;  // micro steps per optimizer step
    int64_t data_parallel_size = 1;  // ranks of one stage that get different rows:
                                     // train_rows == micro_rows * accumulation_steps * this

    bool operator==(const BatchConfig&) const = default;
};

// kAuto: decided at the start of the job, from the measured link.
enum class WireChoice { kOff, kOn, kAuto };

// The forms in which values travel between hosts in fewer bits.
struct WireConfig {
    WireChoice parameters = WireChoice::kOff;  // zero_quantized_weights, stage 3
    WireChoice frozen = WireChoice::kOff;      // zero_quantized_nontrainable_weights, stage 3
    WireChoice gradients = WireChoice::kOff;   // zero_quantized_gradients, stages 1 to 3
    bool error_feedback = false;               // dslaunch.communication.error_feedback
    // The type to which gradients are rounded: kF32, kBF16 or kF16. It comes from
    // communication_data_type or torch_autocast.
    DType gradient_dtype = DType::kF32;
    // The classes of modules whose gradients are rounded to gradient_dtype; not set for all
    // modules.
    std::optional<std::vector<std::string>> gradient_modules;
    bool modules_given = false;  // gradient_modules is from the config, not the default
    // Rounded gradients are divided by this number before they travel, and multiplied by it
    // afterwards. 0 means the number of ranks.
    double predivide_factor = 1.0;
    // zero_hpz_partition_size, for stage 3. The ranks of a host can together keep a copy of
    // gathered parameters: this is the number of these ranks. 1 means no copy. 0 means that a copy
    // is kept if there are several hosts.
    int64_t host_copy_ranks = 1;

    bool operator==(const WireConfig&) const = default;
};

// Sizes are in elements, as in DeepSpeed. Fields that a stage does not use keep their defaults.
struct ZeroConfig {
    int64_t stage = 0;
    int64_t reduce_bucket_numel = 500'000'000;  // reduce_bucket_size: largest size of one reduction
    // Used at stages 1 to 3.
    ShardBy shard = ShardBy::kFlat;  // dslaunch.shard
    bool shard_auto = false;  // the kind is chosen to suit the job (plan/choose/shard_choice.h)
    int64_t shard_ranks = 0;  // mics_shard_size: ranks that together hold a copy; 0 for all ranks
    WireConfig wire;
    // Used at stage 3.
    int64_t prefetch_bucket_numel = 50'000'000;  // limit of elements gathered ahead of use
    int64_t live_numel_max = 1'000'000'000;      // limit of elements gathered at one time
    int64_t reuse_distance_numel_max = 0;        // parameters stay if their next use is this near
    int64_t persistent_parameter_numel = 0;      // parameters up to this size stay whole
    // The largest total number of elements of the parameters that are never sharded.
    int64_t persistent_numel_max = std::numeric_limits<int64_t>::max();

    bool operator==(const ZeroConfig&) const = default;
};

// The name of a preference loss's argument for the reference model's log-probabilities. The column
// with these values has the same name.
inline constexpr const char* kReferenceArgument = "reference";

// The loss and its arguments; a field that a loss does not use keeps its default.
struct LossConfig {
    LossKind kind = LossKind::kModel;  // kModel: forward returns the loss
    std::string target;                // column or argument that holds the target
    LossMean mean = LossMean::kMicroBatch;
    double beta = 0.1;             // preference losses: weight of the difference of two answers
    double label_smoothing = 0.0;  // kDpo: the part of the pairs that may be in the wrong order
    double gamma = 0.5;            // kSimPo: margin by which the chosen answer should be better

    // Returns true if a sample is a pair of answers.
    [[nodiscard]] bool is_preference() const {
        return kind == LossKind::kDpo || kind == LossKind::kIpo || kind == LossKind::kSimPo ||
               kind == LossKind::kOrpo;
    }
    // Returns true if the loss has the reference model's log-probabilities as an argument besides
    // the target.
    [[nodiscard]] bool needs_reference() const {
        return kind == LossKind::kDpo || kind == LossKind::kIpo;
    }
    // Returns true if the target contains class numbers.
    [[nodiscard]] bool takes_classes() const {
        return kind == LossKind::kCrossEntropy || is_preference();
    }
    bool operator==(const LossConfig&) const = default;
};

// The samples for training and for evaluation.
struct DataConfig {
    std::string train_path;
    std::string eval_path;                       // empty for no file; eval_fraction may be used
    int64_t context = 0;                         // tokens per sample; 0 if unset
    std::optional<DType> token_dtype;            // kU16, kU32, kI32 or kI64; if unset, kU16
    std::map<std::string, std::string> columns;  // forward's argument -> column of the file
    bool shuffle = true;
    double eval_fraction = 0.0;  // part of the samples, taken from the end, that is held out

    bool operator==(const DataConfig&) const = default;
};

// The rules for checkpoints: the steps at which they are saved, the number that is kept, and the
// treatment of failures.
struct SaveConfig {
    int64_t interval = 0;      // steps between two saves; 0 for only at the end
    int64_t keep = 0;          // checkpoints kept; 0 for all
    bool async = true;         // written while training continues
    bool goes_on = false;      // training continues after a save that failed
    bool via_rank0 = false;    // hosts share no file system: rank 0's disk gets all files
    int64_t time_limit_s = 0;  // the job saves and ends within this time from its start; 0 for none
    // The metric by which the best checkpoint is chosen and kept; nullopt: none is chosen.
    std::optional<EvalMetric> best;

    bool operator==(const SaveConfig&) const = default;
};

// The texts that a language model writes at each evaluation.
struct SamplesConfig {
    std::vector<std::string> prompts;  // texts to continue
    std::string file;                  // file with prompts in lines of JSON; empty for none
    int64_t tokens = 48;               // generated for each prompt

    // Returns true if there is any text to write.
    [[nodiscard]] bool on() const { return !prompts.empty() || !file.empty(); }
    bool operator==(const SamplesConfig&) const = default;
};

// dslaunch.pipeline, or DeepSpeed's pipeline.
struct PipelineConfig {
    int64_t stages = 1;
    ScheduleKind schedule = ScheduleKind::k1F1B;
    int64_t chunks = 1;               // parts of the model that a stage has
    std::vector<int> first_segments;  // first segment of parts 2, 3, …; empty to divide by cost

    bool operator==(const PipelineConfig&) const = default;
};

// dslaunch.tensor, or the size of DeepSpeed's tensor_parallel.
struct TensorConfig {
    int64_t size = 1;                                        // ranks that share every layer
    std::vector<std::pair<std::string, std::string>> rules;  // pattern of names, name of a rule
    // Rules whose patterns are regular expressions, from DeepSpeed's layer_specs.
    std::vector<std::pair<std::string, std::string>> expressions;
    bool share_positions = false;  // ranks share positions between split layers (Megatron's
                                   // sequence)
    bool check = true;             // one batch is compared with the whole graph before training
    bool strict = false;           // a model with a layer that cannot be split is refused

    bool operator==(const TensorConfig&) const = default;
};

// dslaunch.sequence.
struct SequenceConfig {
    int64_t size = 1;  // ranks that share the positions of every sample
    bool check = true;

    bool operator==(const SequenceConfig&) const = default;
};

// comms_logger: logs the operations between ranks. The times are measured for the plan's
// instructions.
struct CommsLoggerConfig {
    bool enabled = false;
    bool verbose = false;            // a line for each operation
    bool debug = false;              // lines name the instruction
    std::vector<TrafficKind> kinds;  // the kinds that are logged; empty for all

    bool operator==(const CommsLoggerConfig&) const = default;
};

// flops_profiler: a table of each module's cost in one step.
struct FlopsProfilerConfig {
    bool enabled = false;
    int64_t profile_step = 1;   // steps done before the step that is profiled
    int64_t module_depth = -1;  // levels of modules in the tables; -1 for all
    int64_t top_modules = 1;    // modules that the summary of a level names
    bool detailed = true;       // also the tree of all modules
    std::string output_file;    // written on the host of rank 0; empty for the log

    bool operator==(const FlopsProfilerConfig&) const = default;
};

// All settings of a run, the same on every rank.
struct RunConfig {
    LoraConfig lora;
    CompressionConfig compression;
    BatchConfig batch;
    PipelineConfig pipeline;
    TensorConfig tensor;
    SequenceConfig sequence;
    OptimizerConfig optimizer;
    std::vector<ParameterGroup> parameter_groups;  // the first group that matches a name is used
    MomentFormat states = MomentFormat::kFp32;     // the form of the moments in memory
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
    int64_t streams = 0;                    // connections between two hosts; 0 if measured
    bool adds_ranks = false;                // gradient_allreduce_op: sum, not the mean over ranks
    double gradient_clipping = 0.0;         // global L2 norm; 0 if off
    int64_t recompute_groups = 0;  // activation_checkpointing.number_checkpoints; 0 to keep every
                                   // activation
    int64_t steps = 0;  // optimizer steps to train; 0 until `epochs` and the samples determine it
    double epochs = 0;  // passes over the training samples; 0 if `steps` is given
    uint64_t seed = 1234;
    DeviceChoice device = DeviceChoice::kAuto;
    std::vector<std::string> op_libraries;  // files that are loaded before the model
    bool tf32 = false;  // on GPUs: fp32 products may round their factors to TF32
    bool broadcast_buffers = false;
    bool average_buffers = false;  // false if broadcast_buffers is true
    int64_t eval_interval = 0;     // steps between evaluations; 0 for only at the end
    int64_t patience = 0;          // evaluations without a gain until the run ends; 0 for no end
    double patience_gain = 0;      // only a gain above this counts
    SamplesConfig samples;
    int64_t print_interval = 10;  // steps_per_print
    CommsLoggerConfig comms_logger;
    MonitorsConfig monitors;
    bool wall_clock_breakdown = false;  // the times are in each progress line
    bool memory_breakdown = false;      // the memory after each phase is in each progress line
    FlopsProfilerConfig flops_profiler;
    int64_t trace_step = 0;            // the step for which rank 0 writes a trace; 0 for none
    int64_t check_equal_interval = 0;  // steps between checks that copies are equal; 0 for none
    double peak_tflops = 0;  // given peak of a rank's device, for mfu; 0 if looked up or measured

    // Returns the number of ranks that share one copy of the model and work on the same rows; other
    // ranks have different rows.
    [[nodiscard]] int64_t ranks_of_copy() const {
        return pipeline.stages * tensor.size * sequence.size;
    }
    bool operator==(const RunConfig&) const = default;
};

}  // namespace dslaunch::config
