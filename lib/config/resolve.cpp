#include "config/resolve.h"

#include "base/check.h"
#include "base/text.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

namespace dslaunch {
namespace {

using Kind = Value::Kind;

std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return char(std::tolower(c)); });
    return text;
}

class Resolver {
  public:
    Resolver(const TrainConfig& config, const ResolveOptions& options)
        : root_(config.root), options_(options) {
        result_.problems = config.problems;
        std::vector<Problem> found = check_against_schema(root_);
        result_.problems.insert(result_.problems.end(), found.begin(), found.end());
    }

    Resolved run() {
        batch();
        optimizer();
        scheduler();
        zero();
        data();
        training();
        collect_notes("", root_);
        return std::move(result_);
    }

  private:
    RunConfig& run_config() { return result_.config; }

    void problem(const std::string& path, std::string message) {
        const Value* given = find_path(root_, path);
        result_.problems.push_back(
            {path, std::move(message), given != nullptr ? given->origin : ""});
    }

    void record(const std::string& path, Value value, Origin origin, bool unsaid = false) {
        value.origin = origin;
        result_.values.push_back({path, std::move(value), std::move(origin), unsaid});
    }

    // What the user gave, nullptr for nothing, null and auto. A value of the wrong type has been
    // reported.
    const Value* given(const std::string& path) const {
        const Value* value = find_path(root_, path);
        if (value == nullptr || value->is(Kind::kNull) || is_auto(path)) return nullptr;
        const KeySpec* key = find_key(path);
        DSL_CHECK(key != nullptr, "{} is no key of the schema", path);
        return fits(*key, *value) ? value : nullptr;
    }

    static bool fits(const KeySpec& key, const Value& value) {
        switch (key.type) {
            case KeyType::kBool:
                return value.is(Kind::kBool);
            case KeyType::kInt:
                return value.is(Kind::kInt) ||
                       (value.is(Kind::kFloat) && std::abs(value.number) < 9.2e18);
            case KeyType::kFloat:
                return value.is(Kind::kInt) || value.is(Kind::kFloat);
            case KeyType::kString:
                return value.is(Kind::kString);
            default:
                return true;
        }
    }

    bool is_auto(const std::string& path) const {
        const Value* value = find_path(root_, path);
        const KeySpec* key = find_key(path);
        return value != nullptr && value->is(Kind::kString) && value->text == "auto" &&
               key != nullptr && key->type != KeyType::kString;
    }

    // The value that holds, recorded: given, else DERIVED (when it is for "auto" or stands for an
    // absent value), else the schema's default.
    Value take(const std::string& path) {
        const KeySpec* key = find_key(path);
        DSL_CHECK(key != nullptr, "{} is no key of the schema", path);
        if (const Value* value = given(path)) {
            Value whole = *value;
            if (key->type == KeyType::kInt) whole = make_value(as_integer(*value));
            record(path, whole, value->origin);
            return whole;
        }
        Value value = default_value(*key);
        if (is_auto(path)) {
            if (value.is(Kind::kNull))
                problem(path, "`auto` cannot be worked out here: give a value");
            record(path, value, "derived: auto = DeepSpeed's default");
        } else {
            record(path, value, "default");
        }
        return value;
    }

    static int64_t as_integer(const Value& value) {
        return value.is(Kind::kInt) ? value.integer : int64_t(value.number);
    }

    int64_t take_integer(const std::string& path) { return as_integer(take(path)); }
    double take_number(const std::string& path) { return take(path).as_double(); }
    bool take_bool(const std::string& path) { return take(path).boolean; }
    std::string take_text(const std::string& path) { return take(path).text; }

    void derive(const std::string& path, Value value, const std::string& formula,
                bool unsaid = false) {
        record(path, std::move(value), fmt::format("derived: {}", formula), unsaid);
    }

    void batch();
    void batch_unsolved(int64_t ranks);
    void solve_batch(int64_t ranks);
    void optimizer();
    void adam(bool named_adamw);
    void sgd();
    void scheduler();
    void warmup(const std::string& type);
    void cosine();
    void total_steps();
    void zero();
    void data();
    void training();
    void collect_notes(const std::string& path, const Value& value);

    const Value& root_;
    ResolveOptions options_;
    Resolved result_;
};

constexpr const char* kTotal = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kSteps = "gradient_accumulation_steps";

// The relation: train_batch_size = micro batch x accumulation steps x ranks. Two of the three give
// the third.
void Resolver::batch() {
    for (const char* path : {kTotal, kMicro, kSteps}) {
        const Value* value = given(path);
        if (value != nullptr &&
            (as_integer(*value) <= 0 || as_integer(*value) > int64_t{1} << 31)) {
            if (as_integer(*value) > 0) problem(path, "is larger than 2^31");
            return;
        }
    }
    if (options_.world_size) return solve_batch(*options_.world_size);
    const Value *total = given(kTotal), *micro = given(kMicro), *steps = given(kSteps);
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

// Without a world size only what was said can be shown.
void Resolver::batch_unsolved(int64_t ranks) {
    BatchConfig& batch = run_config().batch;
    const Value *total = given(kTotal), *micro = given(kMicro), *steps = given(kSteps);
    batch.data_parallel_size = ranks;
    if (micro != nullptr) batch.micro_rows = as_integer(*micro);
    if (steps != nullptr) batch.accumulation_steps = as_integer(*steps);
    batch.train_rows =
        total != nullptr ? as_integer(*total) : batch.micro_rows * batch.accumulation_steps * ranks;
    for (auto [path, value] : {std::pair{kTotal, total}, {kMicro, micro}, {kSteps, steps}}) {
        if (value != nullptr) {
            record(path, make_value(as_integer(*value)), value->origin);
        } else {
            derive(path, Value{}, "needs the number of ranks (--world-size)", true);
        }
    }
}

void Resolver::solve_batch(int64_t ranks) {
    const Value *total = given(kTotal), *micro = given(kMicro), *steps = given(kSteps);
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
    auto put = [&](const char* path, const Value* value, int64_t number,
                   const std::string& formula) {
        if (value != nullptr) return record(path, make_value(number), value->origin);
        derive(path, make_value(number), formula, true);
    };
    put(kTotal, total, rows, total_formula);
    put(kMicro, micro, micro_rows, micro_formula);
    put(kSteps, steps, micro_steps, steps_formula);
}

void Resolver::optimizer() {
    const std::vector<std::string> later = {"adagrad",     "lamb",   "onebitadam", "onebitlamb",
                                            "zerooneadam", "muadam", "lion",       "muadamw",
                                            "musgd",       "muon"};
    const Value* type = given("optimizer.type");
    const Value* section = find_path(root_, "optimizer");
    if (type == nullptr) {
        if (section != nullptr && section->is(Kind::kObject) && !section->items.empty()) {
            problem("optimizer", "has no `type`: give Adam, AdamW or SGD");
        }
        record("optimizer.type", make_value(std::string("AdamW")), "default");
        return adam(true);
    }
    std::string name = lower(type->text);
    bool there = name == "adam" || name == "adamw" || name == "sgd";
    if (!there) {
        bool known = std::find(later.begin(), later.end(), name) != later.end();
        std::string message =
            known ? fmt::format("{} is not available yet in this version: use Adam, AdamW or SGD",
                                type->text)
                  : fmt::format("unknown optimizer {}", describe(*type));
        std::vector<std::string> names = {"Adam", "AdamW", "SGD"};
        if (!known) {
            auto near = nearest(type->text, names);
            message += near ? fmt::format(", did you mean `{}`?", *near)
                            : std::string(": use Adam, AdamW or SGD");
        }
        return problem("optimizer.type", message);
    }
    record("optimizer.type", *type, type->origin);
    if (name == "sgd") return sgd();
    adam(name == "adamw");
}

// DeepSpeed's "Adam" decays decoupled unless adam_w_mode is false; "AdamW" always does.
void Resolver::adam(bool named_adamw) {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    bool decoupled = take_bool(params + "adam_w_mode") || named_adamw;
    bool torch_adam = take_bool(params + "torch_adam");
    optimizer.kind = decoupled ? OptimizerKind::kAdamW : OptimizerKind::kAdam;
    optimizer.lr = take_number(params + "lr");
    Value betas = take(params + "betas");
    auto share = [](const Value& value) {
        bool number = value.is(Kind::kInt) || value.is(Kind::kFloat);
        return number && value.as_double() >= 0 && value.as_double() < 1;
    };
    if (betas.items.size() != 2 || !share(betas.items[0]) || !share(betas.items[1])) {
        problem(params + "betas", "must be two numbers from 0 to below 1, as [0.9, 0.999]");
    } else {
        optimizer.beta1 = betas.items[0].as_double();
        optimizer.beta2 = betas.items[1].as_double();
    }
    optimizer.eps = take_number(params + "eps");
    bool torch_default = torch_adam && decoupled && given(params + "weight_decay") == nullptr;
    if (torch_default) {
        optimizer.weight_decay = 0.01;
        derive(params + "weight_decay", make_value(0.01),
               "torch.optim.AdamW's default, by torch_adam");
    } else {
        optimizer.weight_decay = take_number(params + "weight_decay");
    }
    optimizer.bias_correction = take_bool(params + "bias_correction");
}

void Resolver::sgd() {
    OptimizerConfig& optimizer = run_config().optimizer;
    const std::string params = "optimizer.params.";
    optimizer.kind = OptimizerKind::kSgd;
    optimizer.lr = take_number(params + "lr");
    optimizer.weight_decay = take_number(params + "weight_decay");
    optimizer.momentum = take_number(params + "momentum");
    optimizer.dampening = take_number(params + "dampening");
    optimizer.nesterov = take_bool(params + "nesterov");
    if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
        problem(params + "nesterov", "needs a momentum above 0 and a dampening of 0");
    }
}

void Resolver::scheduler() {
    const Value* type = given("scheduler.type");
    const Value* section = find_path(root_, "scheduler");
    if (type == nullptr) {
        if (section != nullptr && section->is(Kind::kObject) && !section->items.empty()) {
            problem("scheduler", "has no `type`: give WarmupLR, WarmupDecayLR or WarmupCosineLR");
        }
        return;
    }
    const std::vector<std::string> names = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
    if (type->text == "OneCycle" || type->text == "LRRangeTest") {
        return problem("scheduler.type", type->text +
                                             " is not available yet in this version: use WarmupLR, "
                                             "WarmupDecayLR or WarmupCosineLR");
    }
    if (std::find(names.begin(), names.end(), type->text) == names.end()) {
        auto near = nearest(type->text, names);
        return problem("scheduler.type",
                       fmt::format("unknown scheduler {}{}", describe(*type),
                                   near ? fmt::format(", did you mean `{}`?", *near)
                                        : ": use WarmupLR, WarmupDecayLR or WarmupCosineLR"));
    }
    record("scheduler.type", *type, type->origin);
    SchedulerConfig& scheduler = run_config().scheduler;
    scheduler.warmup_num_steps = take_integer("scheduler.params.warmup_num_steps");
    scheduler.warmup_type = take_text("scheduler.params.warmup_type") == "linear"
                                ? WarmupType::kLinear
                                : WarmupType::kLog;
    if (type->text == "WarmupCosineLR") return cosine();
    warmup(type->text);
}

void Resolver::warmup(const std::string& type) {
    SchedulerConfig& scheduler = run_config().scheduler;
    bool decay = type == "WarmupDecayLR";
    scheduler.kind = decay ? SchedulerKind::kWarmupDecayLr : SchedulerKind::kWarmupLr;
    scheduler.warmup_min_lr = take_number("scheduler.params.warmup_min_lr");
    const std::string max_path = "scheduler.params.warmup_max_lr";
    if (given(max_path) == nullptr && (!decay || is_auto(max_path))) {
        scheduler.warmup_max_lr = run_config().optimizer.lr;
        derive(max_path, make_value(scheduler.warmup_max_lr), "optimizer.params.lr");
    } else {
        scheduler.warmup_max_lr = take_number(max_path);
    }
    if (decay) total_steps();
}

void Resolver::cosine() {
    SchedulerConfig& scheduler = run_config().scheduler;
    scheduler.kind = SchedulerKind::kWarmupCosineLr;
    scheduler.warmup_min_ratio = take_number("scheduler.params.warmup_min_ratio");
    scheduler.cos_min_ratio = take_number("scheduler.params.cos_min_ratio");
    total_steps();
}

void Resolver::total_steps() {
    const std::string path = "scheduler.params.total_num_steps";
    int64_t& total = run_config().scheduler.total_num_steps;
    const Value* steps = given("dslaunch.steps");
    if (given(path) != nullptr) {
        total = take_integer(path);
    } else if (is_auto(path) && steps != nullptr) {
        total = as_integer(*steps);
        derive(path, make_value(total), "dslaunch.steps");
    } else {
        problem(
            path,
            is_auto(path)
                ? "`auto` is dslaunch.steps, which is not given"
                : "is required: the step at which the decay ends, or \"auto\" for dslaunch.steps");
    }
}

void Resolver::zero() {
    ZeroConfig& zero = run_config().zero;
    zero.stage = take_integer("zero_optimization.stage");
    if (zero.stage >= 1 && zero.stage <= 3) {
        problem(
            "zero_optimization.stage",
            fmt::format("ZeRO stage {} is not available yet in this version: use 0", zero.stage));
    }
    zero.reduce_bucket_numel = take_integer("zero_optimization.reduce_bucket_size");
    const std::string overlap = "zero_optimization.overlap_comm";
    if (given(overlap) != nullptr) {
        zero.overlap_comm = take_bool(overlap);
    } else {
        derive(overlap, make_value(true), "true, reduction overlaps backward unless set to false");
    }
}

void Resolver::data() {
    DataConfig& data = run_config().data;
    data.train_path = take_text("dslaunch.data.train");
    data.eval_path = take_text("dslaunch.data.eval");
    data.context = take_integer("dslaunch.data.context");
    std::string type = take_text("dslaunch.data.dtype");
    if (type == "uint16") data.token_type = TokenType::kUint16;
    if (type == "uint32") data.token_type = TokenType::kUint32;
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

void Resolver::training() {
    RunConfig& run = run_config();
    const std::string clipping = "gradient_clipping";
    if (is_auto(clipping)) {
        run.gradient_clipping = 1.0;
        derive(clipping, make_value(1.0), "auto = 1.0, the value of DeepSpeed's documentation");
    } else {
        run.gradient_clipping = take_number(clipping);
    }
    run.print_interval = take_integer("steps_per_print");
    run.recompute_groups = take_integer("activation_checkpointing.number_checkpoints");
    run.steps = take_integer("dslaunch.steps");
    if (options_.needs_steps && given("dslaunch.steps") == nullptr) {
        problem("dslaunch.steps", "is not given: how many optimizer steps to train (--steps N)");
    }
    int64_t seed = take_integer("dslaunch.seed");
    if (seed < 0) problem("dslaunch.seed", "must not be negative");
    run.seed = uint64_t(seed);
    std::string device = take_text("dslaunch.device");
    run.device = device == "cpu"    ? DeviceChoice::kCpu
                 : device == "cuda" ? DeviceChoice::kCuda
                                    : DeviceChoice::kAuto;
    std::string loss = take_text("dslaunch.loss.name");
    const std::vector<std::pair<std::string, LossKind>> losses = {
        {"cross_entropy", LossKind::kCrossEntropy},
        {"mse", LossKind::kMse},
        {"l1", LossKind::kL1},
        {"bce_with_logits", LossKind::kBceWithLogits}};
    for (const auto& [name, kind] : losses) {
        if (name == loss) run.loss.kind = kind;
    }
    run.loss.target = take_text("dslaunch.loss.target");
    run.loss.mean =
        take_text("dslaunch.loss.mean") == "token" ? LossMean::kToken : LossMean::kMicroBatch;
    run.save.interval = take_integer("dslaunch.save.interval");
    run.save.keep = take_integer("dslaunch.save.keep");
    run.eval_interval = take_integer("dslaunch.eval_interval");
    run.broadcast_buffers = take_bool("dslaunch.broadcast_buffers");
    run.reduce = take_text("dslaunch.communication.reduce") == "micro_step" ? ReduceWhen::kMicroStep
                                                                            : ReduceWhen::kOnce;
}

// What was said, asks for something, and has no effect here: each is one printed line, never
// silence.
void Resolver::collect_notes(const std::string& path, const Value& value) {
    for (size_t i = 0; i < value.keys.size(); ++i) {
        std::string inner =
            path.empty() ? value.keys[i] : fmt::format("{}.{}", path, value.keys[i]);
        const KeySpec* key = find_key(inner);
        const Value& item = value.items[i];
        if (key == nullptr) continue;
        if (item.is(Kind::kObject)) {
            collect_notes(inner, item);
        } else if (key->status == KeyStatus::kNotYet && item.is(Kind::kString) &&
                   item.text == "auto" && key->type != KeyType::kFree) {
            result_.notes.push_back(printable(fmt::format("{}: {}: auto = {}, {}", item.origin,
                                                          inner, key->fallback, key->note)));
        } else if (key->status == KeyStatus::kWithoutEffect && !item.is(Kind::kNull) &&
                   !same_value(item, default_value(*key))) {
            result_.notes.push_back(
                printable(fmt::format("{}: {} has no effect: {}", item.origin, inner, key->note)));
        }
    }
}

}  // namespace

Resolved resolve(const TrainConfig& config, const ResolveOptions& options) {
    return Resolver(config, options).run();
}

}  // namespace dslaunch
