// resolve_compression(): reads compression_training, which trains weights and activations with few
// bits, or with masks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "config/resolve/resolve_parts.h"
#include "config/run/bit_schedule.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

const std::string kCompression = "compression_training";
// The most bits that a value in fp32 can use.
constexpr int64_t kBitsMax = 24;
constexpr int64_t kActivationBitsMin = 4, kActivationBitsMax = 16;

// The reader of one method, such as weight_quantization.
class MethodReader {
  public:
    MethodReader(KeyReader& keys, const char* method)
        : keys_(keys),
          method_(method),
          path_(kCompression + "." + method),
          shared_(path_ + ".shared_parameters") {}

    [[nodiscard]] bool is_on() const { return keys_.is_true(of("enabled")); }
    // Returns the path of KEY in shared_parameters.
    [[nodiscard]] std::string of(const std::string& key) const { return shared_ + "." + key; }
    // Records the whole section, as the user gave it.
    void record() const {
        const Value* const value = keys_.given(path_);
        keys_.record(path_, *value, value->origin);
    }
    // Return the value of KEY in shared_parameters, or its default.
    [[nodiscard]] int64_t integer(const std::string& key) const {
        return as_integer(value(of(key)));
    }
    [[nodiscard]] bool flag(const std::string& key) const { return value(of(key)).boolean; }
    [[nodiscard]] double number(const std::string& key) const { return value(of(key)).as_double(); }
    [[nodiscard]] std::string text(const std::string& key) const { return value(of(key)).text; }

    // Returns the groups. Calls TAKE(group, path of its `params`) for each group; TAKE adds the
    // numbers to the group.
    template <typename Take>
    [[nodiscard]] std::vector<CompressedGroup> groups(const Take& take) const {
        std::vector<CompressedGroup> groups;
        const Value* const given = keys_.given(path_ + ".different_groups");
        if (given == nullptr || given->keys.empty()) {
            keys_.problem(path_ + ".different_groups",
                          "is missing: the method is enabled, but no group names its modules");
            return groups;
        }
        for (const std::string& name : given->keys) {
            const std::string path = path_ + ".different_groups." + name;
            CompressedGroup group;
            group.name = name;
            group.modules = expressions(path + ".modules");
            if (group.modules.empty())
                keys_.problem(path + ".modules",
                              "is empty, so the group would change nothing; name modules, or "
                              "remove the group");
            if (removes()) group.related = lists_of_expressions(path + ".related_modules");
            if (!group.related.empty() && group.related.size() != group.modules.size())
                keys_.problem(path + ".related_modules",
                              fmt::format("has {} lists, but there are {} modules: give one list "
                                          "for each entry of `modules`",
                                          group.related.size(), group.modules.size()));
            take(group, path + ".params.");
            groups.push_back(std::move(group));
        }
        return groups;
    }

    // Warns if a run of STEPS steps ends before the method begins. STEPS is 0 if it is not known.
    void check_offset(int64_t steps) const {
        const int64_t offset = integer("schedule_offset");
        if (steps > 0 && steps <= offset)
            keys_.add_warning(fmt::format("{} is {}, but the run has {}: the method never begins",
                                          of("schedule_offset"), offset, counted(steps, "step")));
    }

    // Returns the integer at PATH, which has no default.
    [[nodiscard]] int64_t needed(const std::string& path) const {
        if (!keys_.has(path)) keys_.problem(path, "is missing: DeepSpeed has no default for it");
        return as_integer(value(path));
    }
    [[nodiscard]] double needed_ratio(const std::string& path) const {
        if (!keys_.has(path)) keys_.problem(path, "is missing: DeepSpeed has no default for it");
        const double ratio = value(path).as_double();
        if (ratio == 0) keys_.problem(path, "must be above 0: at 0, no weights remain");
        return ratio;
    }

    KeyReader& keys() const { return keys_; }

  private:
    // Returns true if the method removes rows or columns. Modules that are related to the pruned
    // ones then lose the same rows or columns.
    [[nodiscard]] bool removes() const {
        return method_ == "row_pruning" || method_ == "head_pruning" ||
               method_ == "channel_pruning";
    }

    [[nodiscard]] Value value(const std::string& path) const {
        const Value* const given = keys_.given(path);
        return given != nullptr ? *given : default_value(*find_key(path));
    }

    void require_expression(const std::string& path, const std::string& text) const {
        if (text == "*") return;
        if (const std::string fault = fault_of_expression(text); !fault.empty())
            keys_.problem(path, fmt::format("`{}` {}", printable(text), fault));
    }

    [[nodiscard]] std::vector<std::string> expressions(const std::string& path) const {
        const Value found = value(path);
        if (!is_strings(found)) {
            keys_.problem(path, "must be a list of regular expressions for names of modules");
            return {};
        }
        for (const std::string& text : texts_of(found)) require_expression(path, text);
        return texts_of(found);
    }

    [[nodiscard]] std::vector<std::vector<std::string>> lists_of_expressions(
        const std::string& path) const {
        std::vector<std::vector<std::string>> lists;
        const Value found = value(path);
        for (const Value& item : found.items) {
            if (!is_strings(item)) {
                keys_.problem(path,
                              "must be a list of lists of regular expressions, one list for "
                              "each of `modules`");
                return {};
            }
            lists.push_back(texts_of(item));
            for (const std::string& text : lists.back()) require_expression(path, text);
        }
        return lists;
    }

    KeyReader& keys_;
    std::string method_;
    std::string path_;
    std::string shared_;
};

void check_bits(const MethodReader& method, const WeightQuantization& weights,
                const CompressedGroup& group, const std::string& params) {
    KeyReader& keys = method.keys();
    if (std::max(group.start_bits, group.target_bits) > kBitsMax)
        keys.problem(params + (group.target_bits > kBitsMax ? "target_bits" : "start_bits"),
                     fmt::format("must be at most {}", kBitsMax));
    if (!weights.in_forward && group.start_bits < group.target_bits)
        keys.problem(params + "start_bits", "must not be below target_bits");
    if (group.target_bits > 2) return;
    if (!weights.is_symmetric)
        keys.problem(params + "target_bits",
                     "1 and 2 bits need quantization_type symmetric, as in DeepSpeed");
    if (!weights.in_forward && weights.is_stochastic)
        keys.problem(params + "target_bits", "1 and 2 bits need rounding nearest, as in DeepSpeed");
}

void check_schedule(const MethodReader& method, const WeightQuantization& weights,
                    const CompressedGroup& group, const std::string& params, int64_t steps) {
    if (weights.in_forward || steps == 0 || group.start_bits <= group.target_bits) return;
    const int64_t updates = updates_to_target({.start = group.start_bits,
                                               .target = group.target_bits,
                                               .period = group.period,
                                               .offset = weights.offset});
    if (steps <= updates)
        method.keys().warn(
            params + "target_bits",
            fmt::format(
                "is not reached: the number of bits falls to {} after {}, but the run has only {}",
                group.target_bits, counted(updates, "update"), counted(steps, "step")));
}

void weight_quantization(KeyReader& keys, RunConfig& run) {
    const MethodReader method(keys, "weight_quantization");
    if (!method.is_on()) return;
    method.record();
    WeightQuantization& weights = run.compression.weights;
    weights.in_forward = method.flag("quantize_weight_in_forward");
    weights.is_symmetric = method.text("quantization_type") == "symmetric";
    weights.is_stochastic = method.text("rounding") == "stochastic";
    weights.groups = method.integer("quantize_groups");
    weights.offset = method.integer("schedule_offset");
    method.check_offset(run.steps);
    weights.mixes = method.flag("fp16_mixed_quantize.enabled");
    weights.change_ratio = method.number("fp16_mixed_quantize.quantize_change_ratio");
    constexpr const char* kFixed =
        "with quantize_weight_in_forward, weights are rounded to nearest, in target_bits, from "
        "step schedule_offset on, as in DeepSpeed";
    if (weights.in_forward) {
        keys.unread(method.of("rounding"), kFixed);
        keys.unread(method.of("fp16_mixed_quantize.enabled"), kFixed);
    }
    weights.parts = method.groups([&](CompressedGroup& group, const std::string& params) {
        group.start_bits = method.needed(params + "start_bits");
        group.target_bits = method.needed(params + "target_bits");
        const Value* const period = keys.given(params + "quantization_period");
        group.period = period == nullptr ? 1 : as_integer(*period);
        check_bits(method, weights, group, params);
        check_schedule(method, weights, group, params, run.steps);
        if (!weights.in_forward) return;
        if (group.start_bits != group.target_bits) keys.unread(params + "start_bits", kFixed);
        keys.unread(params + "quantization_period", kFixed);
    });
}

void activation_quantization(KeyReader& keys, RunConfig& run) {
    const MethodReader method(keys, "activation_quantization");
    if (!method.is_on()) return;
    method.record();
    ActivationQuantization& activations = run.compression.activations;
    activations.is_symmetric = method.text("quantization_type") == "symmetric";
    activations.is_static = method.text("range_calibration") == "static";
    activations.offset = method.integer("schedule_offset");
    method.check_offset(run.steps);
    activations.parts = method.groups([&](CompressedGroup& group, const std::string& params) {
        group.bits = method.needed(params + "bits");
        if (group.bits < kActivationBitsMin || group.bits > kActivationBitsMax)
            keys.problem(params + "bits",
                         fmt::format("must be {} to {}", kActivationBitsMin, kActivationBitsMax));
    });
}

void pruning(KeyReader& keys, const char* name, Pruning& pruning, int64_t steps) {
    const MethodReader method(keys, name);
    if (!method.is_on()) return;
    method.record();
    const std::string kind = method.text("method");
    pruning.learns = kind == "topk";
    pruning.offset = method.integer("schedule_offset");
    method.check_offset(steps);
    const bool is_heads = std::string_view(name) == "head_pruning";
    if (kind == "snip_momentum")
        keys.problem(method.of("method"),
                     "snip_momentum is not available: in DeepSpeed it needs Intel's "
                     "neural_compressor, whose pruners it calls; use l1 or topk");
    if (is_heads && !pruning.learns)
        keys.problem(method.of("method"), "DeepSpeed prunes heads with topk only");
    if (is_heads) pruning.heads = std::max<int64_t>(1, method.needed(method.of("num_heads")));
    if (std::string_view(name) == "sparse_pruning" && kind != "snip_momentum")
        for (const char* key : {"schedule_offset_end", "schedule_offset_stride", "block_pattern",
                                "dense_ratio", "excluded_modules"})
            keys.unread(method.of(key), "it belongs to snip_momentum");
    pruning.parts = method.groups([&](CompressedGroup& group, const std::string& params) {
        group.dense_ratio = method.needed_ratio(params + "dense_ratio");
    });
}

void layer_reduction(KeyReader& keys, RunConfig& run) {
    const std::string path = kCompression + ".layer_reduction";
    if (!keys.is_true(path + ".enabled")) return;
    keys.record(path, *keys.given(path), keys.given(path)->origin);
    LayerReduction& reduction = run.compression.reduction;
    reduction.enabled = true;
    const Value* const prefix = keys.given(path + ".module_name_prefix");
    const Value* const layers = keys.given(path + ".teacher_layer");
    const Value* const others = keys.given(path + ".other_module_name");
    const Value* const count = keys.given(path + ".keep_number_layer");
    if (prefix != nullptr) reduction.prefix = prefix->text;
    for (const Value& layer : layers == nullptr ? std::vector<Value>() : layers->items) {
        if (!layer.is(Kind::kInt) || layer.integer < 0)
            return keys.problem(path + ".teacher_layer", "must be a list of numbers of layers");
        reduction.teacher_layers.push_back(layer.integer);
    }
    if (others != nullptr && !is_strings(*others))
        return keys.problem(path + ".other_module_name", "must be a list of names of modules");
    if (others != nullptr) reduction.others = texts_of(*others);
    if (prefix == nullptr && layers != nullptr)
        keys.problem(path + ".module_name_prefix", "is missing: teacher_layer needs it");
    if (layers == nullptr && others == nullptr)
        keys.problem(path + ".teacher_layer",
                     "is missing: without teacher_layer and other_module_name, nothing is copied "
                     "from the teacher");
    if (count != nullptr && layers != nullptr && as_integer(*count) != std::ssize(layers->items))
        keys.problem(path + ".keep_number_layer",
                     fmt::format("is {}, but teacher_layer names {} layers", as_integer(*count),
                                 layers->items.size()));
    if (!run.compression.distill.teacher.empty()) return;
    if (layers == nullptr || layers->items.empty())
        keys.problem(path + ".teacher_layer",
                     "is missing: without dslaunch.distill.teacher, teacher_layer lists the "
                     "model's own layers that are kept");
    else
        keys.note(path + ".enabled",
                  fmt::format("is on without dslaunch.distill.teacher: the model keeps only {} of "
                              "its own, and the loss does not use a teacher",
                              counted(std::ssize(reduction.teacher_layers), "layer")));
}

// Reads dslaunch.distill. If the weight is 0, the loss has no teacher, but the model may still
// begin with layers of the teacher.
void distill(KeyReader& keys, RunConfig& run) {
    const std::string section = "dslaunch.distill";
    if (!keys.has(section)) return;
    DistillConfig& distill = run.compression.distill;
    distill.teacher = keys.take_text(section + ".teacher");
    distill.kind =
        keys.take_text(section + ".kind") == "hidden" ? DistillKind::kHidden : DistillKind::kLogits;
    distill.temperature = keys.take_number(section + ".temperature");
    distill.weight = keys.take_number(section + ".weight");
    if (distill.teacher.empty())
        keys.problem(section + ".teacher", "is missing: give the path of the teacher's model");
    if (distill.weight == 0 && !keys.is_true(kCompression + ".layer_reduction.enabled"))
        keys.warn(section + ".weight",
                  "is 0, and no layers are copied from the teacher "
                  "(compression_training.layer_reduction is off), so the teacher has no effect");
    if (distill.kind == DistillKind::kHidden)
        keys.unread(section + ".temperature", "only kind logits has a temperature");
}

// Returns true if the compression changes during the run. Held-out losses that were measured at
// different steps cannot be compared in this case.
bool changes_while_it_trains(const CompressionConfig& config) {
    const WeightQuantization& weights = config.weights;
    const auto begins_later = [](const auto& method) {
        return !method.parts.empty() && method.offset > 0;
    };
    const bool falls =
        !weights.in_forward &&
        (weights.mixes || std::ranges::any_of(weights.parts, [](const CompressedGroup& group) {
             return group.start_bits != group.target_bits;
         }));
    return (falls && !weights.parts.empty()) || begins_later(weights) ||
           begins_later(config.activations) || begins_later(config.sparse) ||
           begins_later(config.rows) || begins_later(config.heads) || begins_later(config.channels);
}

// Refuses settings that cannot be combined with compression or with a teacher.
void check_combinations(KeyReader& keys, const RunConfig& run) {
    if (run.compression.reduction.enabled && run.lora.on())
        keys.problem(kCompression + ".layer_reduction",
                     "cannot be combined with dslaunch.lora: an adapter is useful only with its "
                     "base model, which does not have the teacher's layers");
    const bool teaches = run.compression.distill.teaches();
    if (!run.compression.changes_graph() && !teaches) return;
    const auto refuse = [&](const std::string& what, const std::string& why) {
        keys.problem(run.compression.changes_graph() ? kCompression : "dslaunch.distill",
                     fmt::format("cannot be combined with {}: {}", what, why));
    };
    if (teaches && run.loss.is_preference())
        refuse("a preference loss", "use --loss cross_entropy, or a model that computes it");
    if (run.tensor.size * run.sequence.size > 1)
        refuse("dslaunch.tensor and dslaunch.sequence",
               "each rank has only a part of a weight, but compression needs whole groups of the "
               "weight");
    if (run.lora.on())
        refuse("dslaunch.lora", "adapters keep the weights as they are; merge the adapter first");
    if (changes_while_it_trains(run.compression)) {
        const std::string why =
            "held-out losses rise when the number of bits falls or a method begins, so losses of "
            "different steps cannot be compared; set schedule_offset to 0 in each method, and "
            "start_bits equal to target_bits";
        if (run.save.best) refuse("dslaunch.save.best", why);
        if (run.patience > 0) refuse("dslaunch.patience", why);
    }
    if (run.samples.on() && run.compression.changes_graph())
        refuse("dslaunch.samples",
               "samples are generated with the weights before compression, not with the compressed "
               "weights of the layers; generate samples after the run");
}

}  // namespace

void resolve_compression(KeyReader& keys, RunConfig& run) {
    const int64_t steps = run.steps;
    distill(keys, run);
    layer_reduction(keys, run);
    weight_quantization(keys, run);
    activation_quantization(keys, run);
    pruning(keys, "sparse_pruning", run.compression.sparse, steps);
    pruning(keys, "row_pruning", run.compression.rows, steps);
    pruning(keys, "head_pruning", run.compression.heads, steps);
    pruning(keys, "channel_pruning", run.compression.channels, steps);
    check_combinations(keys, run);
}

}  // namespace dslaunch::config
