#include "config/resolve/begun_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "config/resolve/key_reader.h"
#include "config/schema/schema.h"

namespace dslaunch::config {

namespace {

constexpr std::string_view kUsual = "derived: usual";

// A group of keys that are taken from the resumed run together. If the config has one of these
// keys, the resumed run's values of the whole group are ignored.
struct Together {
    std::vector<const char*> keys;
    bool of_pretrained = false;
};
constexpr size_t kBatch = 2;  // the index of the batch's group
const std::array<Together, 5>& groups() {
    static const std::array<Together, 5> kGroups = {
        {{{"optimizer.params.lr"}, true},
         {{"gradient_clipping", "optimizer.params.max_grad_norm"}, true},
         {{"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"},
          true},
         {{"dslaunch.data.context"}},
         {{"dslaunch.epochs", "dslaunch.steps"}}}};
    return kGroups;
}

struct Begun {
    Value value;
    std::string origin;

    [[nodiscard]] bool is_derived() const { return origin.starts_with("derived"); }
};

bool is_number(const Value& value) {
    return value.is(Value::Kind::kInt) || value.is(Value::Kind::kFloat);
}

// Returns the values of a resolved config by key; JSON contains the config. Returns nothing for any
// other text.
std::map<std::string, Begun> all_values_of(std::string_view json) {
    const TrainConfig read = parse_config(json, "run.json");
    const Value* values = find_path(read.root, "run.config.values");
    if (values == nullptr) values = find_path(read.root, "values");
    std::map<std::string, Begun> found;
    if (!read.problems.empty() || values == nullptr || !values->is(Value::Kind::kList))
        return found;
    for (const Value& item : values->items) {
        if (!item.is(Value::Kind::kObject)) continue;
        const Value *path = item.find("path"), *value = item.find("value"),
                    *origin = item.find("origin");
        if (path == nullptr || value == nullptr || origin == nullptr) continue;
        found[path->text] = {*value, origin->text};
    }
    return found;
}

std::map<std::string, Begun> values_of(std::string_view json) {
    std::map<std::string, Begun> found = all_values_of(json);
    std::erase_if(found, [](const auto& entry) { return !is_number(entry.second.value); });
    return found;
}

// Returns the settings in LORA that determine the adapters' tensors and their effect. The text has
// the form of the option `--lora`.
std::string lora_text(const LoraConfig& lora) {
    if (!lora.on()) return "";
    std::string text = fmt::format("r={},alpha={}", lora.r, lora.alpha);
    if (lora.rslora) text += ",rslora=true";
    if (!lora.targets.empty()) text += ",targets=" + join(lora.targets, ",");
    if (!lora.modules_to_save.empty())
        text += ",modules_to_save=" + join(lora.modules_to_save, ",");
    return text;
}

LoraConfig lora_of(std::string_view json) {
    const std::map<std::string, Begun> values = all_values_of(json);
    const auto at = [&](const char* key) {
        const auto found = values.find(std::string("dslaunch.lora.") + key);
        return found == values.end() ? Value{} : found->second.value;
    };
    const auto texts = [&](const char* key) {
        const Value value = at(key);
        return is_strings(value) ? texts_of(value) : std::vector<std::string>{};
    };
    LoraConfig lora;
    if (!is_number(at("r")) || !is_number(at("alpha"))) return lora;
    lora.r = static_cast<int64_t>(at("r").as_double());
    lora.alpha = at("alpha").as_double();
    lora.rslora = at("rslora").is(Value::Kind::kBool) && at("rslora").boolean;
    lora.targets = texts("targets");
    lora.modules_to_save = texts("modules_to_save");
    return lora;
}

// Returns the batch keys whose values in the earlier run are also valid if the number of ranks has
// changed.
std::vector<std::string> batch_keys(const std::map<std::string, Begun>& values) {
    std::vector<std::string> said;
    for (const char* key : groups()[kBatch].keys) {
        const auto found = values.find(key);
        if (found == values.end()) return {};
        if (found->second.origin.starts_with(kUsual)) return {};  // the rule chooses it again
        if (!found->second.is_derived()) said.emplace_back(key);
    }
    if (said.empty()) said = {groups()[kBatch].keys[1], groups()[kBatch].keys[2]};
    return said;
}

}  // namespace

std::vector<std::string> begun_values(std::string_view json) {
    const std::map<std::string, Begun> values = values_of(json);
    std::vector<std::string> begun;
    const auto add = [&](const std::string& key) {
        const auto found = values.find(key);
        if (found == values.end() || found->second.origin.starts_with("derived: relative_step"))
            return false;
        begun.push_back(fmt::format("{}={}", key, to_json(found->second.value)));
        return true;
    };
    add("optimizer.params.lr");
    add("gradient_clipping");
    for (const std::string& key : batch_keys(values)) add(key);
    add("dslaunch.data.context");
    if (!add("dslaunch.epochs")) add("dslaunch.steps");
    return begun;
}

void take_begun(TrainConfig& config, const std::vector<std::string>& begun, bool is_pretrained) {
    const auto is_named = [&](const char* key) {
        const Value* const value = find_path(config.root, key);
        return value != nullptr && !value->is(Value::Kind::kNull);
    };
    const Value* const elastic = find_path(config.root, "elasticity.enabled");
    const bool is_elastic = elastic != nullptr && elastic->boolean;
    std::vector<std::string> taken;
    for (const std::string& assignment : begun) {
        const std::string key = assignment.substr(0, assignment.find('='));
        for (const Together& group : groups()) {
            const bool is_of_it = std::ranges::find(group.keys, key) != group.keys.end();
            if (!is_of_it || (group.of_pretrained && !is_pretrained)) continue;
            if (is_elastic && &group == &groups()[kBatch]) continue;
            if (std::ranges::none_of(group.keys, is_named)) taken.push_back(assignment);
        }
    }
    for (const std::string& assignment : taken) apply_override(config, assignment, kBegunOrigin);
}

std::vector<std::string> begun_otherwise(const Resolved& resolved, std::string_view json) {
    const std::map<std::string, Begun> values = values_of(json);
    std::vector<std::string> otherwise;
    for (const char* key : {"optimizer.params.lr", "gradient_clipping", "train_batch_size"}) {
        const auto now = std::ranges::find(resolved.values, key, &ResolvedValue::path);
        const auto then = values.find(key);
        if (now == resolved.values.end() || then == values.end() ||
            !now->origin.starts_with(kUsual) || then->second.origin.starts_with(kUsual) ||
            same_value(now->value, then->second.value))
            continue;
        otherwise.push_back(fmt::format("--set {}={}", key, to_json(then->second.value)));
    }
    return otherwise;
}

std::string other_lora_text(const LoraConfig& lora, std::string_view json) {
    const std::string then = lora_text(lora_of(json)), now = lora_text(lora);
    if (then == now) return "";
    if (then.empty())
        return "its run trained the model's own weights, but --lora asks for adapters: remove "
               "--lora (dslaunch.lora)";
    return fmt::format("its run trained adapters with {}{}: use --lora '{}'", then,
                       now.empty() ? ", but --lora is not given" : ", not with " + now, then);
}

std::string begun_data(std::string_view json) {
    const std::map<std::string, Begun> values = all_values_of(json);
    const auto data = values.find("dslaunch.data.train");
    return data == values.end() ? "" : data->second.value.text;
}

}  // namespace dslaunch::config
