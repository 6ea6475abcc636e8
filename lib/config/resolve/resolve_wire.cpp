// Resolves the keys for communication: the number of bits in which values are sent between hosts,
// the copy of parameters that each host keeps so that they are not sent again, and the
// communication log.
#include "config/resolve/resolve_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/text/file_faults.h"

namespace dslaunch::config {

namespace {

constexpr const char* kWeights = "zero_optimization.zero_quantized_weights";
constexpr const char* kFrozen = "zero_optimization.zero_quantized_nontrainable_weights";
constexpr const char* kGradients = "zero_optimization.zero_quantized_gradients";
constexpr const char* kGradientType = "communication_data_type";
constexpr const char* kSequenceType = "seq_parallel_communication_data_type";
constexpr const char* kHostCopy = "zero_optimization.zero_hpz_partition_size";
constexpr const char* kStreams = "dslaunch.communication.streams";
constexpr int64_t kStreamsMost = 64;
constexpr const char* kFeedback = "dslaunch.communication.error_feedback";

// The classes of modules whose gradients torch_autocast sends in its 16-bit type, unless the config
// names others.
constexpr std::array<const char*, 4> kSafeModules{"torch.nn.Linear", "torch.nn.Conv1d",
                                                  "torch.nn.Conv2d", "torch.nn.Conv3d"};

struct OpName {
    const char* deepspeed;  // the beginning of the name
    TrafficKind kind;
};
// The operations between ranks, by the names of the functions of deepspeed.comm. DeepSpeed's
// communication logger uses these names.
constexpr std::array<OpName, 12> kOpNames{{{"all_reduce", TrafficKind::kReduce},
                                           {"inference_all_reduce", TrafficKind::kTensor},
                                           {"reduce", TrafficKind::kReduce},
                                           {"all_gather", TrafficKind::kGather},
                                           {"allgather", TrafficKind::kGather},
                                           {"gather", TrafficKind::kGather},
                                           {"all_to_all", TrafficKind::kTensor},
                                           {"send", TrafficKind::kStage},
                                           {"isend", TrafficKind::kStage},
                                           {"recv", TrafficKind::kStage},
                                           {"irecv", TrafficKind::kStage},
                                           {"broadcast", TrafficKind::kControl}}};

std::optional<TrafficKind> kind_of(const std::string& name) {
    for (int kind = 0; kind < kTrafficKinds; ++kind)
        if (traffic_kind_name(static_cast<TrafficKind>(kind)) == name)
            return static_cast<TrafficKind>(kind);
    for (const OpName& op : kOpNames)
        if (name.starts_with(op.deepspeed)) return op.kind;
    if (name == "barrier" || name == "monitored_barrier") return TrafficKind::kControl;
    return std::nullopt;
}

void autocast_modules(KeyReader& keys, RunConfig& run) {
    WireConfig& wire = run.zero.wire;
    const std::string path = "torch_autocast.lower_precision_safe_modules";
    std::vector<std::string> modules(kSafeModules.begin(), kSafeModules.end());
    const bool is_given = keys.has(path);
    if (is_given && run.optimizer.compresses())
        return keys.unread(path,
                           "the optimizer computes its variance from uncompressed gradients, which "
                           "hosts always exchange in fp32");
    if (is_given) modules = keys.take_texts(path);
    if (modules.empty()) return;
    wire.modules_given = is_given;
    wire.gradient_dtype = run.precision.compute;
    wire.gradient_modules = std::move(modules);
}

// Reads the divisor that is applied to gradients before they are rounded.
void before_rounding(KeyReader& keys, RunConfig& run) {
    WireConfig& wire = run.zero.wire;
    const std::string prescale = "prescale_gradients", factor = "gradient_predivide_factor";
    const char* reason = nullptr;
    if (run.adds_ranks)
        reason = "with gradient_allreduce_op sum, nothing is divided";
    else if (wire.gradient_dtype == DType::kF32)
        reason = "gradients are sent in fp32, where their sums do not overflow";
    if (reason != nullptr) {
        keys.unread(prescale, reason);
        keys.unread(factor, reason);
    } else if (keys.take_bool(prescale)) {
        wire.predivide_factor = 0;
        keys.unread(factor, "prescale_gradients divides by the number of ranks");
    } else {
        wire.predivide_factor = keys.take_number(factor);
    }
}

// Reads the type to which gradients are rounded when they travel between hosts.
void gradient_type(KeyReader& keys, RunConfig& run) {
    WireConfig& wire = run.zero.wire;
    const bool shares_positions = run.sequence.size > 1;
    keys.unread(
        shares_positions ? kGradientType : kSequenceType,
        shares_positions
            ? "with dslaunch.sequence.size, seq_parallel_communication_data_type sets the type"
            : "dslaunch.sequence.size is 1; communication_data_type sets the type");
    const std::string path = shares_positions ? kSequenceType : kGradientType;
    const Value* value = keys.given(path);
    run.adds_ranks = keys.take_text("gradient_allreduce_op") == "sum";
    if (run.precision.fp32_weights && keys.is_true("torch_autocast.enabled")) {
        if (value != nullptr)
            keys.unread(path, "torch_autocast sets which gradients are sent in 16 bits");
        autocast_modules(keys, run);
    } else if (value == nullptr) {
        keys.derive(path, make_value(std::string("fp32")), "gradients are sent without rounding");
    } else {
        keys.record(path, *value, value->origin);
        wire.gradient_dtype = value->text == "fp16"   ? DType::kF16
                              : value->text == "bf16" ? DType::kBF16
                                                      : DType::kF32;
    }
    if (run.optimizer.compresses()) {
        if (wire.gradient_dtype != DType::kF32 && !run.precision.fp32_weights)
            keys.problem(path,
                         "the optimizer exchanges momenta in 1 bit, and computes its variance from "
                         "uncompressed gradients, which are always sent in fp32: remove the key");
        wire.gradient_dtype = DType::kF32;
    }
    if (run.adds_ranks && run.optimizer.compresses())
        keys.problem(
            "gradient_allreduce_op",
            "the optimizer averages what hosts exchange in 1 bit: use mean, or another optimizer");
    before_rounding(keys, run);
}

// Reads the choice at PATH. Refuses packing at ZeRO stages below FIRST_STAGE, because packing would
// round the model's own values, or round sums twice.
WireChoice take_packing(KeyReader& keys, RunConfig& run, const std::string& path,
                        int64_t first_stage) {
    const ZeroConfig& zero = run.zero;
    const bool lacks_stage = zero.stage < first_stage;
    const bool rounds = path == kGradients && zero.wire.gradient_dtype != DType::kF32;
    if (keys.is_auto(path)) {
        if (rounds) {
            keys.derive(path, make_value(std::string("false")),
                        "auto = false, because another key sends gradients in 16 bits");
            return WireChoice::kOff;
        }
        const bool packs = !lacks_stage && zero.shard_ranks == 0;
        keys.derive(path, make_value(std::string(packs ? "auto" : "false")),
                    packs ? "auto = according to the measured link between hosts"
                          : "auto = false, because no shards are sent between hosts");
        return packs ? WireChoice::kAuto : WireChoice::kOff;
    }
    if (!keys.take_bool(path)) return WireChoice::kOff;
    if (lacks_stage && path == kGradients) {
        keys.problem(path,
                     "at ZeRO stage 0 every host gets all sums, which would be rounded twice: use "
                     "stages 1 to 3");
    } else if (lacks_stage) {
        keys.problem(path,
                     fmt::format("at ZeRO stage {} updated parameters are gathered in place, and "
                                 "rounding would change them: use stage 3",
                                 zero.stage));
    } else if (zero.shard_ranks > 0) {
        keys.problem(
            path,
            "with mics_shard_size, every host has a whole copy: no parameters are sent between "
            "hosts, and all hosts get all sums of gradients; use only one of the two");
    } else if (rounds) {
        keys.problem(path,
                     "sends gradients in 4 bits, but communication_data_type or torch_autocast "
                     "asks for 16: use only one of the two");
    }
    return WireChoice::kOn;
}

void host_copies(KeyReader& keys, RunConfig& run) {
    const ZeroConfig& zero = run.zero;
    int64_t& ranks = run.zero.wire.host_copy_ranks;
    const bool gathers = zero.stage == 3 && zero.shard_ranks == 0;
    if (keys.is_auto(kHostCopy)) {
        ranks = gathers ? 0 : 1;
        keys.derive(kHostCopy, make_value(std::string(gathers ? "auto" : "1")),
                    gathers ? "auto = the ranks of a host, if there are several hosts"
                            : "auto = 1, because nothing is gathered between hosts");
    } else {
        ranks = keys.take_integer(kHostCopy);
    }
    if (ranks == 1) return;
    if (zero.stage < 3) {
        keys.problem(
            kHostCopy,
            fmt::format(
                "at ZeRO stage {} every host has all parameters: use stage 3, or remove the key",
                zero.stage));
    } else if (zero.shard_ranks > 0) {
        keys.problem(
            kHostCopy,
            "with mics_shard_size, every host has all parameters: use only one of the two");
    } else if (run.offload.parameters == OffloadDevice::kNvme) {
        keys.problem(kHostCopy,
                     "keeps all parameters in a host's memory, but offload_param keeps them on "
                     "disk: use only one of the two");
    }
}

void error_feedback(KeyReader& keys, RunConfig& run) {
    bool& feedback = run.zero.wire.error_feedback;
    feedback = keys.take_bool(kFeedback);
    if (!feedback) return;
    if (run.zero.wire.gradients == WireChoice::kOff)
        keys.problem(
            kFeedback,
            fmt::format("keeps the rounding errors of {}, which is not enabled: enable both",
                        kGradients));
    if (run.precision.loss_scale.dynamic)
        keys.problem(kFeedback,
                     "keeps rounding errors of gradients, which become wrong when fp16.loss_scale "
                     "0 (dynamic) changes the loss scale: use bf16, or a fixed loss scale");
}

// Reports an operation that DeepSpeed logs and dslaunch does not have. A name that is similar to a
// known one is reported as a mistake.
void unknown_operation(KeyReader& keys, const std::string& path, const std::string& name) {
    std::vector<std::string> known = {"barrier", "monitored_barrier"};
    for (int kind = 0; kind < kTrafficKinds; ++kind)
        known.emplace_back(traffic_kind_name(static_cast<TrafficKind>(kind)));
    for (const OpName& op : kOpNames) known.emplace_back(op.deepspeed);
    const auto near = nearest(name, known);
    if (near && edit_distance(name, *near) <= 2)
        return keys.problem(
            path, fmt::format("`{}` is not an operation, did you mean `{}`?", name, *near));
    keys.note(path,
              fmt::format("names `{}`, which is not an operation here: use reduce, gather, norm, "
                          "stage, tensor, control, or one of deepspeed.comm such as all_reduce",
                          name));
}

}  // namespace

void resolve_wire(KeyReader& keys, RunConfig& run) {
    WireConfig& wire = run.zero.wire;
    wire.parameters = take_packing(keys, run, kWeights, 3);
    wire.frozen = take_packing(keys, run, kFrozen, 3);
    gradient_type(keys, run);
    wire.gradients = take_packing(keys, run, kGradients, 1);
    host_copies(keys, run);
    error_feedback(keys, run);
    run.streams = keys.take_integer(kStreams);
    if (run.streams > kStreamsMost)
        keys.problem(kStreams, fmt::format("must be at most {}", kStreamsMost));
}

void resolve_comms_logger(KeyReader& keys, RunConfig& run) {
    CommsLoggerConfig& logger = run.comms_logger;
    logger.enabled = keys.take_bool("comms_logger.enabled");
    logger.verbose = keys.take_bool("comms_logger.verbose");
    logger.debug = keys.take_bool("comms_logger.debug");
    const bool all = keys.take_bool("comms_logger.prof_all");
    const std::string path = "comms_logger.prof_ops";
    for (const std::string& name : keys.take_texts(path)) {
        const std::optional<TrafficKind> kind = kind_of(name);
        if (!kind) unknown_operation(keys, path, name);
        if (kind && !all && std::ranges::count(logger.kinds, *kind) == 0)
            logger.kinds.push_back(*kind);
    }
    if (!logger.enabled || all || !logger.kinds.empty()) return;
    logger.enabled = false;
    keys.note("comms_logger", "logs nothing: prof_all is false, and prof_ops names no operation");
}

void resolve_profilers(KeyReader& keys, RunConfig& run) {
    FlopsProfilerConfig& profiler = run.flops_profiler;
    profiler.enabled = keys.take_bool("flops_profiler.enabled");
    profiler.profile_step = keys.take_integer("flops_profiler.profile_step");
    profiler.module_depth = keys.take_integer("flops_profiler.module_depth");
    profiler.top_modules = keys.take_integer("flops_profiler.top_modules");
    profiler.detailed = keys.take_bool("flops_profiler.detailed");
    profiler.output_file = keys.take_text("flops_profiler.output_file");
    if (const std::string text = unexpanded_text(profiler.output_file); !text.empty())
        keys.problem("flops_profiler.output_file", text);
    if (profiler.module_depth < -1)
        keys.problem("flops_profiler.module_depth", "must be -1 (all levels), 0 or more");
    run.check_equal_interval = keys.take_integer("dslaunch.check_equal_interval");
    if (run.check_equal_interval > 0 && run.optimizer.compresses())
        keys.note("dslaunch.check_equal_interval",
                  "has no effect with this optimizer: between two exchanges, the values of hosts "
                  "may differ");
    run.peak_tflops = keys.take_number("dslaunch.peak_tflops");
}

}  // namespace dslaunch::config
