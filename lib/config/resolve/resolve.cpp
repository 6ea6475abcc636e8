#include "config/resolve/resolve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "config/read/quoteless.h"
#include "config/resolve/resolve_parts.h"
#include "config/run/gpu_faults.h"

namespace dslaunch::config {

namespace {

using Kind = Value::Kind;

constexpr const char* kSteps = "dslaunch.steps";
constexpr const char* kEpochs = "dslaunch.epochs";
constexpr int64_t kMicroStepsMax = 65'536;
constexpr const char* kSchedule = "dslaunch.pipeline.schedule";
constexpr const char* kChunks = "dslaunch.pipeline.chunks";
constexpr const char* kFirstSegments = "dslaunch.pipeline.first_segments";

// The largest number of segments in a model.
constexpr int64_t kMostChunks = 1 << 16;
// The largest number of ranks on an axis: an int64_t can hold the product of three such numbers.
constexpr int64_t kMostRanks = 1 << 20;

// Returns the number of ranks at PATH, limited to 1 .. kMostRanks, since later checks divide by it.
int64_t take_ranks(KeyReader& keys, const std::string& path) {
    const int64_t ranks = keys.take_integer(path);
    if (ranks > kMostRanks)
        keys.problem(path, fmt::format("{} is more than the maximum, {}", ranks, kMostRanks));
    return std::clamp<int64_t>(ranks, 1, kMostRanks);
}

void chunks(KeyReader& keys, RunConfig& run) {
    PipelineConfig& pipeline = run.pipeline;
    const std::string name(schedule_name(pipeline.schedule));
    const bool interleaved = pipeline.schedule == ScheduleKind::kInterleaved;
    const bool several = interleaved || pipeline.schedule == ScheduleKind::kZeroBubbleV;
    pipeline.chunks = several ? 2 : 1;
    if (!keys.has(kChunks))
        return keys.derive(kChunks, make_value(pipeline.chunks), "the default of " + name, true);
    const int64_t wanted = as_integer(keys.take(kChunks));
    if (interleaved && wanted == 1)
        return keys.problem(
            kChunks,
            "interleaved needs at least 2 chunks per stage: with 1 it is the same as 1f1b");
    if (!interleaved && wanted != pipeline.chunks)
        return keys.problem(
            kChunks,
            fmt::format("{} needs {} per stage, not {}: remove the key, or use interleaved", name,
                        several ? "2 chunks" : "1 chunk", wanted));
    if (wanted > kMostChunks)
        return keys.problem(kChunks,
                            fmt::format("{} is more than the maximum, {}", wanted, kMostChunks));
    pipeline.chunks = wanted;
}

void first_segments(KeyReader& keys, RunConfig& run) {
    PipelineConfig& pipeline = run.pipeline;
    const Value* const given_segments = keys.given(kFirstSegments);
    if (given_segments == nullptr) return;
    keys.record(kFirstSegments, *given_segments, given_segments->origin);
    for (const Value& item : given_segments->items) {
        if (!item.is(Kind::kInt) || item.integer < 1 || item.integer > INT32_MAX)
            return keys.problem(kFirstSegments,
                                "must be a list of segment numbers, each at least 1");
        pipeline.first_segments.push_back(static_cast<int>(item.integer));
    }
    const int64_t parts = pipeline.stages * pipeline.chunks;
    if (std::ssize(pipeline.first_segments) + 1 == parts) return;
    const std::string of =
        pipeline.chunks == 1 ? "stage" : fmt::format("part ({} per stage)", pipeline.chunks);
    keys.problem(
        kFirstSegments,
        fmt::format(
            "names {} segments, but must name {}: the first segment of each {} except the first {}",
            pipeline.first_segments.size(), parts - 1, of,
            pipeline.chunks == 1 ? "stage" : "part"));
}

// Records only the values that were given. Without a world size, the other values are unknown.
void batch_unsolved(KeyReader& keys, RunConfig& run, int64_t ranks) {
    BatchConfig& batch = run.batch;
    const Value *total = keys.given(kTotal), *micro = keys.given(kMicro),
                *steps = keys.given(kMicroSteps);
    batch.data_parallel_size = ranks;
    if (micro != nullptr) batch.micro_rows = as_integer(*micro);
    if (steps != nullptr) batch.accumulation_steps = as_integer(*steps);
    check_micro_steps(keys, run);
    batch.train_rows =
        total != nullptr ? as_integer(*total) : batch.micro_rows * batch.accumulation_steps * ranks;
    for (auto [path, value] : {std::pair{kTotal, total}, {kMicro, micro}, {kMicroSteps, steps}}) {
        if (value != nullptr) {
            keys.record(path, make_value(as_integer(*value)), value->origin);
        } else {
            keys.derive(path, Value{}, "needs the number of ranks (--world-size)", true);
        }
    }
}

void solve_batch(KeyReader& keys, RunConfig& run, int64_t ranks) {
    const Value *total = keys.given(kTotal), *micro = keys.given(kMicro),
                *steps = keys.given(kMicroSteps);
    int64_t rows = total != nullptr ? as_integer(*total) : 0;
    int64_t micro_rows = micro != nullptr ? as_integer(*micro) : 0;
    int64_t micro_steps = steps != nullptr ? as_integer(*steps) : 0;
    auto relation = [&](const std::string& cause) {
        const auto is_option = [](const Value* value) {
            return value != nullptr && value->origin.starts_with("--");
        };
        const bool adapts = total != nullptr && !is_option(total);
        keys.problem(
            total != nullptr ? kTotal : kMicro,
            fmt::format("{}; train_batch_size = train_micro_batch_size_per_gpu x "
                        "gradient_accumulation_steps x ranks{}",
                        cause, adapts ? " (--set train_batch_size=auto computes it)" : ""));
    };
    double product = double(std::max<int64_t>(micro_rows, 1)) *
                     double(std::max<int64_t>(micro_steps, 1)) * double(ranks);
    if (product > 9e15) return relation("the batch sizes are too large");
    std::string total_formula, micro_formula, steps_formula;
    if (total == nullptr) {
        if (micro == nullptr) micro_formula = "1 row when no batch size is given";
        if (keys.is_auto(kMicro)) {
            micro_rows = as_integer(*keys.trainer_value(kMicro));
            micro_formula = "auto = the default of Hugging Face's Trainer";
        }
        if (steps == nullptr) steps_formula = "1 when not given";
        micro_rows = std::max<int64_t>(micro_rows, 1);
        micro_steps = std::max<int64_t>(micro_steps, 1);
        rows = micro_rows * micro_steps * ranks;
        total_formula =
            fmt::format("{} rows x {} micro steps x {} ranks", micro_rows, micro_steps, ranks);
    } else if (micro == nullptr) {
        micro_steps = std::max<int64_t>(micro_steps, 1);
        if (steps == nullptr) steps_formula = "1 when not given";
        if (rows % (micro_steps * ranks) != 0) {
            return relation(fmt::format("{} is not a multiple of {} micro steps x {} ranks = {}",
                                        rows, micro_steps, ranks, micro_steps * ranks));
        }
        micro_rows = rows / (micro_steps * ranks);
        micro_formula =
            fmt::format("{} rows / {} micro steps / {} ranks", rows, micro_steps, ranks);
    } else if (steps == nullptr) {
        if (rows % (micro_rows * ranks) != 0) {
            return relation(fmt::format("{} is not a multiple of {} rows x {} ranks = {}", rows,
                                        micro_rows, ranks, micro_rows * ranks));
        }
        micro_steps = rows / (micro_rows * ranks);
        steps_formula =
            fmt::format("{} rows / {} rows per micro step / {} ranks", rows, micro_rows, ranks);
    } else if (rows != micro_rows * micro_steps * ranks) {
        return relation(fmt::format("{} is not {} x {} x {} ranks = {}", rows, micro_rows,
                                    micro_steps, ranks, micro_rows * micro_steps * ranks));
    }
    run.batch = {rows, micro_rows, micro_steps, ranks};
    check_micro_steps(keys, run);
    auto put = [&](const char* path, const Value* value, int64_t number,
                   const std::string& formula) {
        if (value != nullptr) return keys.record(path, make_value(number), value->origin);
        // A number that was chosen for `auto` is also valid for another world size. A number that
        // was computed from the world size is not.
        keys.derive(path, make_value(number), formula, !formula.starts_with("auto"));
    };
    put(kTotal, total, rows, total_formula);
    put(kMicro, micro, micro_rows, micro_formula);
    put(kMicroSteps, steps, micro_steps, steps_formula);
}

void save_via(KeyReader& keys, RunConfig& run) {
    const std::string via = "dslaunch.save.via";
    bool& via_rank0 = run.save.via_rank0;
    const bool node_local = keys.take_bool("checkpoint.use_node_local_storage");
    if (!node_local || keys.has(via)) {
        via_rank0 = keys.take_text(via) == "rank0";
    } else {
        via_rank0 = true;
        keys.derive(via, make_value(std::string("rank0")), "checkpoint.use_node_local_storage");
    }
}

constexpr const char* kHoldOut =
    "give a file with --eval-data FILE (dslaunch.data.eval), or hold out a part of the data with "
    "--set dslaunch.data.eval_fraction=0.05";

// Returns why RUN cannot compute METRIC; empty if it can.
std::string why_no_metric(const RunConfig& run, EvalMetric metric) {
    if (metric == EvalMetric::kLoss || run.loss.is_preference()) return "";
    return fmt::format(
        "{} exists only for losses of pairs (dslaunch.loss.name: dpo, ipo, simpo, "
        "orpo): use eval_loss",
        eval_metric_name(metric));
}

void save_best(KeyReader& keys, RunConfig& run) {
    const std::string best = "dslaunch.save.best";
    const std::string name = keys.take_text(best);
    if (name.empty()) return;
    run.save.best = eval_metric_from_name(name);
    if (!run.save.best)
        return keys.problem(
            best,
            fmt::format("`{}` is none of {}{}", printable(name), fmt::join(kEvalMetricNames, ", "),
                        name.find("perplexity") == std::string::npos
                            ? ""
                            : "; eval_loss orders checkpoints as perplexity does"));
    if (const std::string why = why_no_metric(run, *run.save.best); !why.empty())
        return keys.problem(best, why);
    if (run.data.eval_path.empty() && run.data.eval_fraction == 0)
        keys.problem(best, fmt::format("needs held-out data: {}", kHoldOut));
    else if (run.eval_interval == 0)
        keys.problem(best,
                     "needs evaluations during the run: give --eval-interval N "
                     "(dslaunch.eval_interval), the number of steps between them");
}

void patience(KeyReader& keys, RunConfig& run) {
    const std::string path = "dslaunch.patience", gain = "dslaunch.patience_gain";
    run.patience = keys.take_integer(path);
    run.patience_gain = keys.take_number(gain);
    if (run.patience == 0) {
        if (run.patience_gain > 0)
            keys.problem(gain, "has no meaning without dslaunch.patience: set both, or remove it");
        return;
    }
    if (run.data.eval_path.empty() && run.data.eval_fraction == 0)
        keys.problem(path, fmt::format("needs held-out data: {}", kHoldOut));
    else if (run.eval_interval == 0)
        keys.problem(
            path,
            "counts evaluations, so it needs --eval-interval N (dslaunch.eval_interval), the "
            "number of steps between them");
    else if (run.steps > 0 && run.steps / run.eval_interval <= run.patience)
        keys.warn(path, fmt::format("cannot end the run early, because the run's {} have only {}: "
                                    "set a lower value, or evaluate more often (--eval-interval)",
                                    counted(run.steps, "step"),
                                    counted(run.steps / run.eval_interval, "evaluation")));
}

void samples(KeyReader& keys, RunConfig& run) {
    run.samples.prompts = keys.take_texts("dslaunch.samples.prompts");
    run.samples.file = keys.take_text("dslaunch.samples.file");
    run.samples.tokens = keys.take_integer("dslaunch.samples.tokens");
    if (!run.samples.prompts.empty() && !run.samples.file.empty())
        keys.problem("dslaunch.samples.file",
                     "give either dslaunch.samples.prompts or a file, not both");
    if (run.samples.on() && run.ranks_of_copy() > 1)
        keys.problem("dslaunch.samples",
                     "texts cannot be written during a run whose ranks share a copy of the model "
                     "(dslaunch.pipeline, dslaunch.tensor, dslaunch.sequence): remove the section, "
                     "and use `dslaunch generate` on the exported weights");
}

// Reads the clipping norm. DeepSpeed has two keys for it; one is a parameter of the optimizer.
void clipping(KeyReader& keys, RunConfig& run) {
    double& norm = run.gradient_clipping;
    const std::string path = "gradient_clipping", other = "optimizer.params.max_grad_norm";
    const double of_optimizer = keys.has(other) ? keys.take_number(other) : 0;
    if (keys.has(path)) {
        norm = keys.take_number(path);
        if (of_optimizer > 0 && of_optimizer != norm)
            keys.problem(other, fmt::format("is {}, but gradient_clipping, which means the same, "
                                            "is {}: remove one of the two",
                                            of_optimizer, norm));
    } else if (of_optimizer > 0) {
        norm = of_optimizer;
        keys.derive(path, make_value(norm), other);
    } else if (keys.is_auto(path) || keys.is_auto(other)) {
        norm = 1.0;
        keys.derive(path, make_value(norm), "auto = 1.0, the value in DeepSpeed's documentation");
    } else if (keys.options().is_pretrained) {
        usual_clipping(keys, run);
    } else {
        norm = 0;
        keys.derive(path, make_value(norm), "off when not given; DeepSpeed 0.19 would clip at 1.0");
    }
}

// Returns "; give --num_gpus 4" if RANKS are too few for one copy of the model.
std::string more_ranks_text(int64_t ranks, int64_t copy) {
    return ranks < copy ? fmt::format("; give --num_gpus {}", copy) : "";
}

}  // namespace

void resolve_pipeline(KeyReader& keys, RunConfig& run) {
    PipelineConfig& pipeline = run.pipeline;
    const std::string path = "dslaunch.pipeline.stages";
    pipeline.stages = take_ranks(keys, path);
    if (pipeline.stages == 1) {
        for (const char* path : {kSchedule, kChunks, kFirstSegments})
            keys.unread(path, "there is only one stage");
        return;
    }
    if (keys.options().world_size && *keys.options().world_size % pipeline.stages != 0)
        keys.problem(path,
                     fmt::format("{} stages cannot divide {} ranks evenly{}", pipeline.stages,
                                 *keys.options().world_size,
                                 more_ranks_text(*keys.options().world_size, pipeline.stages)));
    if (const auto kind = schedule_named(keys.take_text(kSchedule))) pipeline.schedule = *kind;
    chunks(keys, run);
    first_segments(keys, run);
}

// Resolves how several ranks compute one micro batch: by sharing layers (tensor) or positions
// (sequence).
void resolve_tensor(KeyReader& keys, RunConfig& run) {
    TensorConfig& tensor = run.tensor;
    SequenceConfig& sequence = run.sequence;
    const std::string path = "dslaunch.tensor.size";
    tensor.size = take_ranks(keys, path);
    const std::string sequence_path = "dslaunch.sequence.size";
    sequence.size = take_ranks(keys, sequence_path);
    for (const char* again :
         {"tensor_parallel.tp.tp_size", "tensor_parallel.tensor_parallel.tp_size"}) {
        const Value* const said = keys.given(again);
        if (said != nullptr && as_integer(*said) != 1 && as_integer(*said) != tensor.size)
            keys.problem(
                again,
                fmt::format(
                    "{} is neither 1 nor tensor_parallel.autotp_size, which is {}: remove the key",
                    as_integer(*said), tensor.size));
    }
    if (tensor.size == 1) {
        for (const char* name : {"rules", "share_positions", "check", "strict"})
            keys.unread(fmt::format("dslaunch.tensor.{}", name), "dslaunch.tensor.size is 1");
        keys.unread(kLayerSpecs, "dslaunch.tensor.size is 1");
    } else {
        resolve_tensor_rules(keys, run);
        tensor.share_positions = keys.take_bool("dslaunch.tensor.share_positions");
        tensor.check = keys.take_bool("dslaunch.tensor.check");
        tensor.strict = keys.take_bool("dslaunch.tensor.strict");
    }
    if (sequence.size == 1) {
        keys.unread("dslaunch.sequence.check", "dslaunch.sequence.size is 1");
    } else {
        sequence.check = keys.take_bool("dslaunch.sequence.check");
    }
    if (tensor.size > 1 && sequence.size > 1)
        keys.problem(sequence_path,
                     "cannot be used together with dslaunch.tensor.size in this version; to share "
                     "positions between split layers, use dslaunch.tensor.share_positions");
    const int64_t copy = run.ranks_of_copy();
    if (keys.options().world_size && tensor.size * sequence.size > 1 &&
        *keys.options().world_size % copy != 0)
        keys.problem(tensor.size > 1 ? path : sequence_path,
                     fmt::format("{} ranks cannot be divided into copies of the model with {} "
                                 "ranks each = {} stages x tensor {} x sequence {}{}",
                                 *keys.options().world_size, copy, run.pipeline.stages, tensor.size,
                                 sequence.size, more_ranks_text(*keys.options().world_size, copy)));
}

void check_micro_steps(KeyReader& keys, const RunConfig& run) {
    const int64_t micro_steps = run.batch.accumulation_steps;
    if (micro_steps <= kMicroStepsMax) return;
    keys.problem(keys.has(kMicroSteps) ? kMicroSteps : kTotal,
                 fmt::format("{} micro steps per step are more than the maximum, {}, because the "
                             "plan lists the instructions of each; give each micro step more rows",
                             micro_steps, kMicroStepsMax));
}

// Solves `train_batch_size == micro batch * accumulation steps * copies`. Here, "copies" is the
// number of copies of the model that get different rows. Two of the three keys determine the third.
void resolve_batch(KeyReader& keys, RunConfig& run) {
    if (resolve_elastic_batch(keys, run)) return;
    for (const char* path : {kTotal, kMicro, kMicroSteps}) {
        const Value* value = keys.given(path);
        if (value != nullptr &&
            (as_integer(*value) <= 0 || as_integer(*value) > int64_t{1} << 31)) {
            if (as_integer(*value) > 0) keys.problem(path, "is larger than 2^31");
            return;
        }
    }
    if (keys.options().world_size) {
        const int64_t ranks =
            std::max<int64_t>(1, *keys.options().world_size / run.ranks_of_copy());
        return takes_usual_batch(keys) ? usual_batch(keys, run, ranks)
                                       : solve_batch(keys, run, ranks);
    }
    const Value *total = keys.given(kTotal), *micro = keys.given(kMicro),
                *steps = keys.given(kMicroSteps);
    if (total != nullptr && micro != nullptr && steps != nullptr) {
        int64_t product = as_integer(*micro) * as_integer(*steps);
        if (as_integer(*total) % product != 0) {
            return keys.problem(
                kTotal, fmt::format("{} is not a multiple of {} ({} x {} = {}): no number of ranks "
                                    "fits train_batch_size = train_micro_batch_size_per_gpu x "
                                    "gradient_accumulation_steps x ranks",
                                    as_integer(*total), product, as_integer(*micro),
                                    as_integer(*steps), product));
        }
        return solve_batch(keys, run, as_integer(*total) / product);
    }
    const Value* const part = micro != nullptr ? micro : steps;
    if (total != nullptr && part != nullptr && as_integer(*total) % as_integer(*part) != 0)
        return keys.problem(kTotal,
                            fmt::format("{} is not a multiple of {} = {}: no number of ranks fits",
                                        as_integer(*total), micro != nullptr ? kMicro : kMicroSteps,
                                        as_integer(*part)));
    batch_unsolved(keys, run, 1);
}

void resolve_data(KeyReader& keys, RunConfig& run) {
    DataConfig& data = run.data;
    data.train_path = keys.take_text("dslaunch.data.train");
    data.eval_path = keys.take_text("dslaunch.data.eval");
    const std::string context = "dslaunch.data.context";
    if (keys.options().context > 0 && !keys.has(context)) {
        data.context = keys.options().context;
        keys.derive(context, make_value(data.context), keys.options().context_reason, true);
        keys.choose(fmt::format("{} tokens per sample: {} (--context)", data.context,
                                keys.options().context_reason));
    } else {
        data.context = keys.take_integer(context);
    }
    const std::string type = keys.take_text("dslaunch.data.dtype");
    for (const auto& [name, dtype] : {std::pair{"uint16", DType::kU16},
                                      {"uint32", DType::kU32},
                                      {"int32", DType::kI32},
                                      {"int64", DType::kI64}})
        if (type == name) data.token_dtype = dtype;
    if (const Value* columns = find_path(keys.root(), "dslaunch.data.columns");
        columns != nullptr) {
        for (size_t i = 0; i < columns->keys.size(); ++i) {
            const Value& column = columns->items[i];
            if (column.is(Kind::kString)) data.columns[columns->keys[i]] = column.text;
        }
        if (columns->is(Kind::kObject))
            keys.record("dslaunch.data.columns", *columns, columns->origin);
    }
    data.shuffle = keys.take_bool("dslaunch.data.shuffle");
    data.eval_fraction = keys.take_number("dslaunch.data.eval_fraction");
    if (data.eval_fraction == 1)  // the schema refuses more
        keys.problem("dslaunch.data.eval_fraction",
                     "must be below 1: nothing would be left to train on");
    if (!data.eval_path.empty() && data.eval_fraction > 0) {
        keys.problem("dslaunch.data.eval_fraction",
                     "give either dslaunch.data.eval or eval_fraction, not both");
    }
}

// REQUIRES: the batch is solved.
void resolve_steps(KeyReader& keys, RunConfig& run) {
    const bool by_epochs = keys.has(kEpochs);
    run.epochs = keys.take_number(kEpochs);
    if (by_epochs && keys.has(kSteps)) {
        run.steps = keys.take_integer(kSteps);
        const std::string steps = keys.given(kSteps)->origin;
        return keys.problem(
            kEpochs,
            fmt::format(
                "cannot be used together with dslaunch.steps ({}): remove one of "
                "the two{}",
                steps,
                steps.starts_with("--") ? "" : "; --set dslaunch.steps=null ignores the steps"));
    }
    if (keys.has_or_auto(kSteps)) {
        run.steps = keys.take_integer(kSteps);
        return;
    }
    const double epochs = by_epochs ? run.epochs : 1;
    if (!by_epochs) keys.choose("one pass over the data (--epochs, --steps)");
    if (!keys.options().samples || run.batch.train_rows <= 0)
        return keys.derive(kSteps, Value{},
                           by_epochs ? "needs the training data"
                                     : "one pass over the data, whose size is not known here",
                           true);
    const double exact = epochs * static_cast<double>(*keys.options().samples) /
                         static_cast<double>(run.batch.train_rows);
    if (exact > 9e15) return keys.problem(kEpochs, "asks for too many steps: use a smaller number");
    run.steps = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact)));
    keys.derive(kSteps, make_value(run.steps),
                fmt::format("{} epoch{} x {} samples / {} rows per step", epochs,
                            epochs == 1 ? "" : "s", *keys.options().samples, run.batch.train_rows),
                true);
}

namespace {

// Records the keys of `autotuning`, which config/tuning/autotuning.h reads. They have no effect on
// a run.
void record_autotuning(KeyReader& keys) {
    for (const KeySpec& key : schema())
        if (key.path.starts_with("autotuning.") && key.status == KeyStatus::kSupported)
            keys.take(key.path);
    if (keys.is_true("autotuning.enabled"))
        keys.note("autotuning.enabled",
                  "does not start a search: run `dslaunch tune MODEL`, or give the option "
                  "--autotuning tune");
}

}  // namespace

void resolve_training(KeyReader& keys, RunConfig& run) {
    record_autotuning(keys);
    clipping(keys, run);
    run.print_interval = keys.take_integer("steps_per_print");
    run.wall_clock_breakdown = keys.take_bool("wall_clock_breakdown");
    run.memory_breakdown = keys.take_bool("memory_breakdown");
    resolve_comms_logger(keys, run);
    resolve_monitors(keys, run);
    resolve_profilers(keys, run);
    run.recompute_groups = keys.take_integer("activation_checkpointing.number_checkpoints");
    int64_t seed = keys.take_integer("dslaunch.seed");
    if (seed < 0) keys.problem("dslaunch.seed", "must not be negative");
    run.seed = uint64_t(seed);
    std::string device = keys.take_text("dslaunch.device");
    run.device = device == "cpu"    ? DeviceChoice::kCpu
                 : device == "cuda" ? DeviceChoice::kCuda
                                    : DeviceChoice::kAuto;
    run.op_libraries = keys.take_texts("dslaunch.op_libraries");
    resolve_loss(keys, run);
    run.save.interval = keys.take_integer("dslaunch.save.interval");
    run.save.keep = keys.take_integer("dslaunch.save.keep");
    run.save.async = keys.take_bool("dslaunch.save.async");
    run.save.goes_on = keys.take_text("dslaunch.save.on_error") == "continue";
    save_via(keys, run);
    run.save.time_limit_s = keys.take_integer("dslaunch.save.time_limit");
    run.eval_interval = keys.take_integer("dslaunch.eval_interval");
    save_best(keys, run);
    patience(keys, run);
    samples(keys, run);
    if (run.eval_interval > 0 && run.data.eval_path.empty() && run.data.eval_fraction == 0 &&
        !run.samples.on())
        keys.warn("dslaunch.eval_interval",
                  fmt::format("has no effect, because there is no held-out data: {}", kHoldOut));
    run.trace_step = keys.take_integer("dslaunch.trace_step");
    run.broadcast_buffers = keys.take_bool("dslaunch.broadcast_buffers");
    run.average_buffers = keys.take_bool("dslaunch.average_buffers");
    if (run.broadcast_buffers && run.average_buffers)
        keys.problem(
            "dslaunch.average_buffers",
            "cannot be used together with dslaunch.broadcast_buffers: remove one of the two");
    run.tf32 = keys.take_bool("dslaunch.tf32");
}

Resolved resolve(const TrainConfig& config, const ResolveOptions& options) {
    KeyReader keys(config, options);
    RunConfig run;
    for (const auto part :
         {resolve_pipeline, resolve_tensor, resolve_lora, resolve_batch, resolve_steps,
          resolve_optimizer, resolve_parameter_groups, resolve_scheduler, resolve_precision,
          resolve_zero, resolve_offload, resolve_wire, check_compression, resolve_lagging,
          resolve_data, resolve_training, resolve_compression})
        part(keys, run);
    if (run.device == DeviceChoice::kCuda) {
        for (const GpuFault& fault : gpu_faults(run)) keys.problem(fault.path, fault.message);
    }
    check_rate(keys, run);
    return keys.finish(std::move(run));
}

}  // namespace dslaunch::config
