#include "config/resolve/resolve.h"

#include "base/text.h"
#include "config/read/quoteless.h"
#include "config/resolve/resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace dslaunch::config {

namespace {

using Kind = Value::Kind;

constexpr const char* kTotal = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kMicroSteps = "gradient_accumulation_steps";
constexpr const char* kSteps = "dslaunch.steps";
constexpr const char* kEpochs = "dslaunch.epochs";
constexpr int64_t kMicroStepsMax = 65'536;
constexpr const char* kSchedule = "dslaunch.pipeline.schedule";
constexpr const char* kChunks = "dslaunch.pipeline.chunks";
constexpr const char* kFirstSegments = "dslaunch.pipeline.first_segments";

// A model has no more segments than that.
constexpr int64_t kMostChunks = 1 << 16;
// Three axes of so many ranks each have a product that an int64_t holds.
constexpr int64_t kMostRanks = 1 << 20;

}  // namespace

void Resolver::pipeline() {
    PipelineConfig& pipeline = run_config().pipeline;
    const std::string path = "dslaunch.pipeline.stages";
    pipeline.stages = take_ranks(path);
    if (pipeline.stages == 1) {
        for (const char* path : {kSchedule, kChunks, kFirstSegments})
            unread(path, "there is one stage");
        return;
    }
    if (options_.world_size && *options_.world_size % pipeline.stages != 0)
        problem(path, fmt::format("{} stages cannot have equally many of {} ranks", pipeline.stages,
                                  *options_.world_size));
    if (const auto kind = schedule_named(take_text(kSchedule))) pipeline.schedule = *kind;
    chunks();
    first_segments();
}

// The ranks are clamped to 1 .. kMostRanks, whatever was said: the checks that follow divide by
// them.
int64_t Resolver::take_ranks(const std::string& path) {
    const int64_t ranks = take_integer(path);
    if (ranks > kMostRanks) problem(path, fmt::format("{} is more than {}", ranks, kMostRanks));
    return std::clamp<int64_t>(ranks, 1, kMostRanks);
}

void Resolver::chunks() {
    PipelineConfig& pipeline = run_config().pipeline;
    const std::string name(schedule_name(pipeline.schedule));
    const bool interleaved = pipeline.schedule == ScheduleKind::kInterleaved;
    const bool several = interleaved || pipeline.schedule == ScheduleKind::kZeroBubbleV;
    pipeline.chunks = several ? 2 : 1;
    if (given(kChunks) == nullptr)
        return derive(kChunks, make_value(pipeline.chunks), "as " + name + " has by itself", true);
    const int64_t wanted = as_integer(take(kChunks));
    if (interleaved && wanted == 1)
        return problem(kChunks, "interleaved has 2 chunks a stage at least: with 1 it is 1f1b");
    if (!interleaved && wanted != pipeline.chunks)
        return problem(
            kChunks,
            fmt::format("{} has {} a stage, not {}: leave the key out, or take interleaved", name,
                        several ? "2 chunks" : "1 chunk", wanted));
    if (wanted > kMostChunks)
        return problem(kChunks, fmt::format("{} are more than {}", wanted, kMostChunks));
    pipeline.chunks = wanted;
}

void Resolver::first_segments() {
    PipelineConfig& pipeline = run_config().pipeline;
    const Value* const given_segments = given(kFirstSegments);
    if (given_segments == nullptr) return;
    record(kFirstSegments, *given_segments, given_segments->origin);
    for (const Value& item : given_segments->items) {
        if (!item.is(Kind::kInt) || item.integer < 1 || item.integer > INT32_MAX)
            return problem(kFirstSegments, "must be a list of numbers of segments, from 1");
        pipeline.first_segments.push_back(static_cast<int>(item.integer));
    }
    const int64_t parts = pipeline.stages * pipeline.chunks;
    if (std::ssize(pipeline.first_segments) + 1 == parts) return;
    const std::string of =
        pipeline.chunks == 1 ? "stages" : fmt::format("parts, {} a stage,", pipeline.chunks);
    problem(kFirstSegments, fmt::format("names {} segments, and {} {} follow the first",
                                        pipeline.first_segments.size(), parts - 1, of));
}

void Resolver::tensor_rules() {
    const std::string path = "dslaunch.tensor.rules";
    const Value* const rules = given(path);
    if (rules == nullptr) return;
    record(path, *rules, rules->origin);
    const std::string wanted = "must be an object of patterns of parameter names and rules";
    if (!rules->is(Kind::kObject)) return problem(path, wanted + ", not " + describe(*rules));
    for (size_t i = 0; i < rules->keys.size(); ++i) {
        const Value& rule = rules->items[i];
        const bool known =
            rule.is(Kind::kString) && (rule.text == "column" || rule.text == "row" ||
                                       rule.text == "vocabulary" || rule.text == "replicated");
        if (!known)
            return problem(path, fmt::format("the rule of {} must be one of column, row, "
                                             "vocabulary, replicated, not {}",
                                             printable(rules->keys[i]), shown(rule)));
        run_config().tensor.rules.emplace_back(rules->keys[i], rule.text);
    }
}

// The ranks that work on one micro batch together share layers (tensor) or positions (sequence).
void Resolver::tensor() {
    TensorConfig& tensor = run_config().tensor;
    SequenceConfig& sequence = run_config().sequence;
    const std::string path = "dslaunch.tensor.size";
    tensor.size = take_ranks(path);
    const std::string sequence_path = "dslaunch.sequence.size";
    sequence.size = take_ranks(sequence_path);
    for (const char* again :
         {"tensor_parallel.tp.tp_size", "tensor_parallel.tensor_parallel.tp_size"}) {
        const Value* const said = given(again);
        if (said != nullptr && as_integer(*said) != 1 && as_integer(*said) != tensor.size)
            problem(again, fmt::format("{} is neither 1 nor tensor_parallel.autotp_size, which is "
                                       "{}: leave it out",
                                       as_integer(*said), tensor.size));
    }
    if (tensor.size == 1) {
        for (const char* name : {"rules", "share_positions", "check", "strict"})
            unread(fmt::format("dslaunch.tensor.{}", name), "dslaunch.tensor.size is 1");
    } else {
        tensor_rules();
        tensor.share_positions = take_bool("dslaunch.tensor.share_positions");
        tensor.check = take_bool("dslaunch.tensor.check");
        tensor.strict = take_bool("dslaunch.tensor.strict");
    }
    if (sequence.size == 1) {
        unread("dslaunch.sequence.check", "dslaunch.sequence.size is 1");
    } else {
        sequence.check = take_bool("dslaunch.sequence.check");
    }
    if (tensor.size > 1 && sequence.size > 1)
        problem(sequence_path,
                "beside dslaunch.tensor.size is not available yet in this version; "
                "dslaunch.tensor.share_positions shares positions between split layers");
    const int64_t copy = run_config().ranks_of_copy();
    if (options_.world_size && tensor.size * sequence.size > 1 && *options_.world_size % copy != 0)
        problem(tensor.size > 1 ? path : sequence_path,
                fmt::format("{} ranks cannot be dealt to copies of the model of {} = {} stages x "
                            "tensor {} x sequence {}",
                            *options_.world_size, copy, run_config().pipeline.stages, tensor.size,
                            sequence.size));
}

// The relation: train_batch_size = micro batch x accumulation steps x copies of the model that
// have rows of their own. Two of the three give the third.
void Resolver::batch() {
    for (const char* path : {kTotal, kMicro, kMicroSteps}) {
        const Value* value = given(path);
        if (value != nullptr &&
            (as_integer(*value) <= 0 || as_integer(*value) > int64_t{1} << 31)) {
            if (as_integer(*value) > 0) problem(path, "is larger than 2^31");
            return;
        }
    }
    if (options_.world_size) {
        const int64_t ranks =
            std::max<int64_t>(1, *options_.world_size / run_config().ranks_of_copy());
        return takes_usual_batch() ? usual_batch(ranks) : solve_batch(ranks);
    }
    const Value *total = given(kTotal), *micro = given(kMicro), *steps = given(kMicroSteps);
    if (total != nullptr && micro != nullptr && steps != nullptr) {
        int64_t product = as_integer(*micro) * as_integer(*steps);
        if (as_integer(*total) % product != 0) {
            return problem(
                kTotal,
                fmt::format("{} is no multiple of {} ({} x {} = {}): no number of ranks fits "
                            "train_batch_size = train_micro_batch_size_per_gpu x "
                            "gradient_accumulation_steps x ranks",
                            as_integer(*total), product, as_integer(*micro), as_integer(*steps),
                            product));
        }
        return solve_batch(as_integer(*total) / product);
    }
    batch_unsolved(1);
}

void Resolver::check_micro_steps() {
    const int64_t micro_steps = run_config().batch.accumulation_steps;
    if (micro_steps <= kMicroStepsMax) return;
    problem(given(kMicroSteps) != nullptr ? kMicroSteps : kTotal,
            fmt::format("{} micro steps a step are more than {}: the plan of a step holds an "
                        "instruction for each piece of each; give each micro step more rows",
                        micro_steps, kMicroStepsMax));
}

// Only what was said can be shown without a world size.
void Resolver::batch_unsolved(int64_t ranks) {
    BatchConfig& batch = run_config().batch;
    const Value *total = given(kTotal), *micro = given(kMicro), *steps = given(kMicroSteps);
    batch.data_parallel_size = ranks;
    if (micro != nullptr) batch.micro_rows = as_integer(*micro);
    if (steps != nullptr) batch.accumulation_steps = as_integer(*steps);
    check_micro_steps();
    batch.train_rows =
        total != nullptr ? as_integer(*total) : batch.micro_rows * batch.accumulation_steps * ranks;
    for (auto [path, value] : {std::pair{kTotal, total}, {kMicro, micro}, {kMicroSteps, steps}}) {
        if (value != nullptr) {
            record(path, make_value(as_integer(*value)), value->origin);
        } else {
            derive(path, Value{}, "needs the number of ranks (--world-size)", true);
        }
    }
}

void Resolver::solve_batch(int64_t ranks) {
    const Value *total = given(kTotal), *micro = given(kMicro), *steps = given(kMicroSteps);
    int64_t rows = total != nullptr ? as_integer(*total) : 0;
    int64_t micro_rows = micro != nullptr ? as_integer(*micro) : 0;
    int64_t micro_steps = steps != nullptr ? as_integer(*steps) : 0;
    auto relation = [&](const std::string& cause) {
        problem(total != nullptr ? kTotal : kMicro,
                fmt::format("{}; train_batch_size = train_micro_batch_size_per_gpu x "
                            "gradient_accumulation_steps x "
                            "ranks",
                            cause));
    };
    double product = double(std::max<int64_t>(micro_rows, 1)) *
                     double(std::max<int64_t>(micro_steps, 1)) * double(ranks);
    if (product > 9e15) return relation("the batch sizes are too large");
    std::string total_formula, micro_formula, steps_formula;
    if (total == nullptr) {
        if (micro == nullptr) micro_formula = "1 row when no batch size is given";
        if (is_auto(kMicro)) {
            micro_rows = as_integer(*trainer_value(kMicro));
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
            return relation(fmt::format("{} is no multiple of {} micro steps x {} ranks = {}", rows,
                                        micro_steps, ranks, micro_steps * ranks));
        }
        micro_rows = rows / (micro_steps * ranks);
        micro_formula =
            fmt::format("{} rows / {} micro steps / {} ranks", rows, micro_steps, ranks);
    } else if (steps == nullptr) {
        if (rows % (micro_rows * ranks) != 0) {
            return relation(fmt::format("{} is no multiple of {} rows x {} ranks = {}", rows,
                                        micro_rows, ranks, micro_rows * ranks));
        }
        micro_steps = rows / (micro_rows * ranks);
        steps_formula =
            fmt::format("{} rows / {} rows per micro step / {} ranks", rows, micro_rows, ranks);
    } else if (rows != micro_rows * micro_steps * ranks) {
        return relation(fmt::format("{} is not {} x {} x {} ranks = {}", rows, micro_rows,
                                    micro_steps, ranks, micro_rows * micro_steps * ranks));
    }
    run_config().batch = {rows, micro_rows, micro_steps, ranks};
    check_micro_steps();
    auto put = [&](const char* path, const Value* value, int64_t number,
                   const std::string& formula) {
        if (value != nullptr) return record(path, make_value(number), value->origin);
        // A number that `auto` is holds for every world size.
        derive(path, make_value(number), formula, !formula.starts_with("auto"));
    };
    put(kTotal, total, rows, total_formula);
    put(kMicro, micro, micro_rows, micro_formula);
    put(kMicroSteps, steps, micro_steps, steps_formula);
}

void Resolver::data() {
    DataConfig& data = run_config().data;
    data.train_path = take_text("dslaunch.data.train");
    data.eval_path = take_text("dslaunch.data.eval");
    const std::string context = "dslaunch.data.context";
    if (options_.context > 0 && given(context) == nullptr) {
        data.context = options_.context;
        derive(context, make_value(data.context), options_.context_reason, true);
        choose(fmt::format("{} tokens a sample: {} (--context)", data.context,
                           options_.context_reason));
    } else {
        data.context = take_integer(context);
    }
    const std::string type = take_text("dslaunch.data.dtype");
    for (const auto& [name, dtype] : {std::pair{"uint16", DType::kU16},
                                      {"uint32", DType::kU32},
                                      {"int32", DType::kI32},
                                      {"int64", DType::kI64}})
        if (type == name) data.token_dtype = dtype;
    if (const Value* columns = find_path(root_, "dslaunch.data.columns"); columns != nullptr) {
        for (size_t i = 0; i < columns->keys.size(); ++i) {
            const Value& column = columns->items[i];
            if (column.is(Kind::kString)) data.columns[columns->keys[i]] = column.text;
        }
        if (columns->is(Kind::kObject)) record("dslaunch.data.columns", *columns, columns->origin);
    }
    data.shuffle = take_bool("dslaunch.data.shuffle");
    data.eval_fraction = take_number("dslaunch.data.eval_fraction");
    if (data.eval_fraction >= 1)
        problem("dslaunch.data.eval_fraction", "leaves nothing to train on: must be below 1");
    if (!data.eval_path.empty() && data.eval_fraction > 0) {
        problem("dslaunch.data.eval_fraction",
                "give either dslaunch.data.eval or eval_fraction, not both");
    }
}

// REQUIRES: the batch is solved.
void Resolver::steps() {
    RunConfig& run = run_config();
    const bool by_epochs = given(kEpochs) != nullptr;
    run.epochs = take_number(kEpochs);
    if (by_epochs && given(kSteps) != nullptr) {
        run.steps = take_integer(kSteps);
        return problem(kEpochs, "is given beside dslaunch.steps: give one of the two");
    }
    if (given(kSteps) != nullptr || is_auto(kSteps)) {
        run.steps = take_integer(kSteps);
        return;
    }
    const double epochs = by_epochs ? run.epochs : 1;
    if (!by_epochs) choose("one pass over the data (--epochs, --steps)");
    if (!options_.samples || run.batch.train_rows <= 0)
        return derive(kSteps, Value{},
                      by_epochs ? "needs the training data"
                                : "one pass over the data, which are not known here",
                      true);
    const double exact =
        epochs * static_cast<double>(*options_.samples) / static_cast<double>(run.batch.train_rows);
    if (exact > 9e15) return problem(kEpochs, "asks for more steps than can be counted");
    run.steps = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact)));
    derive(kSteps, make_value(run.steps),
           fmt::format("{} epoch{} x {} samples / {} rows a step", epochs, epochs == 1 ? "" : "s",
                       *options_.samples, run.batch.train_rows),
           true);
}

void Resolver::save_via() {
    const std::string via = "dslaunch.save.via";
    bool& via_rank0 = run_config().save.via_rank0;
    const bool node_local = take_bool("checkpoint.use_node_local_storage");
    if (!node_local || given(via) != nullptr) {
        via_rank0 = take_text(via) == "rank0";
    } else {
        via_rank0 = true;
        derive(via, make_value(std::string("rank0")), "checkpoint.use_node_local_storage");
    }
}

// DeepSpeed has two names for it, one of them among the optimizer's parameters.
void Resolver::clipping() {
    double& norm = run_config().gradient_clipping;
    const std::string path = "gradient_clipping", other = "optimizer.params.max_grad_norm";
    const double of_optimizer = given(other) != nullptr ? take_number(other) : 0;
    if (given(path) != nullptr) {
        norm = take_number(path);
        if (of_optimizer > 0 && of_optimizer != norm)
            problem(other, fmt::format("is {}, and gradient_clipping, which means the same, is {}: "
                                       "give one of the two",
                                       of_optimizer, norm));
    } else if (of_optimizer > 0) {
        norm = of_optimizer;
        derive(path, make_value(norm), other);
    } else if (is_auto(path) || is_auto(other)) {
        norm = 1.0;
        derive(path, make_value(norm), "auto = 1.0, the value of DeepSpeed's documentation");
    } else if (options_.is_pretrained) {
        usual_clipping();
    } else {
        norm = 0;
        derive(path, make_value(norm), "off when not given; DeepSpeed 0.19 clips at 1.0 then");
    }
}

void Resolver::training() {
    RunConfig& run = run_config();
    clipping();
    run.print_interval = take_integer("steps_per_print");
    run.wall_clock_breakdown = take_bool("wall_clock_breakdown");
    comms_logger();
    run.recompute_groups = take_integer("activation_checkpointing.number_checkpoints");
    int64_t seed = take_integer("dslaunch.seed");
    if (seed < 0) problem("dslaunch.seed", "must not be negative");
    run.seed = uint64_t(seed);
    std::string device = take_text("dslaunch.device");
    run.device = device == "cpu"    ? DeviceChoice::kCpu
                 : device == "cuda" ? DeviceChoice::kCuda
                                    : DeviceChoice::kAuto;
    run.op_libraries = take_texts("dslaunch.op_libraries");
    loss();
    run.save.interval = take_integer("dslaunch.save.interval");
    run.save.keep = take_integer("dslaunch.save.keep");
    run.save.async = take_bool("dslaunch.save.async");
    run.save.goes_on = take_text("dslaunch.save.on_error") == "continue";
    save_via();
    run.save.time_limit_s = take_integer("dslaunch.save.time_limit");
    run.eval_interval = take_integer("dslaunch.eval_interval");
    run.trace_step = take_integer("dslaunch.trace_step");
    run.broadcast_buffers = take_bool("dslaunch.broadcast_buffers");
    run.average_buffers = take_bool("dslaunch.average_buffers");
    if (run.broadcast_buffers && run.average_buffers)
        problem("dslaunch.average_buffers", "excludes dslaunch.broadcast_buffers: one of them");
    run.tf32 = take_bool("dslaunch.tf32");
}

Resolved resolve(const TrainConfig& config, const ResolveOptions& options) {
    return Resolver(config, options).run();
}

}  // namespace dslaunch::config
