#include "config/resolve/key_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch::config {

namespace {

using Kind = Value::Kind;

// A value that Hugging Face's Trainer uses for `auto` if its command line does not set it. It is a
// default of transformers.TrainingArguments (4.57). VALUE is YAML text.
struct TrainerValue {
    std::string_view path;
    const char* value;
};
constexpr const char* kAutoOrigin = "derived: auto = the default of Hugging Face's Trainer";
constexpr std::array<TrainerValue, 8> kTrainerValues{{
    {"train_micro_batch_size_per_gpu", "8"},
    {"gradient_accumulation_steps", "1"},
    {"optimizer.params.lr", "5e-5"},
    {"optimizer.params.betas", "[0.9, 0.999]"},
    {"optimizer.params.eps", "1e-8"},
    {"optimizer.params.weight_decay", "0.0"},
    {"scheduler.params.warmup_min_lr", "0.0"},
    {"scheduler.params.warmup_num_steps", "0"},
}};

}  // namespace

KeyReader::KeyReader(const TrainConfig& config, const ResolveOptions& options)
    : name_(config.name),
      root_(config.root.is(Kind::kObject) ? in_one_form(config.root) : config.root),
      options_(options) {
    result_.problems = config.problems;
    std::vector<Problem> found = check_against_schema(root_);
    result_.problems.insert(result_.problems.end(), found.begin(), found.end());
}

std::vector<std::string> texts_of(const Value& value) {
    if (value.is(Value::Kind::kString)) return {value.text};
    std::vector<std::string> texts;
    for (const Value& item : value.items) texts.push_back(item.text);
    return texts;
}

void KeyReader::problem(const std::string& path, std::string message) {
    const std::string name = written(path);
    const Value* given = find_path(root_, name);
    result_.problems.push_back({name, std::move(message), given != nullptr ? given->origin : ""});
}

void KeyReader::record(const std::string& path, Value value, Origin origin, bool unsaid) {
    value.origin = origin;
    result_.values.push_back({path, std::move(value), std::move(origin), unsaid});
}

void KeyReader::derive(const std::string& path, Value value, const std::string& formula,
                       bool unsaid) {
    record(path, std::move(value), fmt::format("derived: {}", formula), unsaid);
}

const Value* KeyReader::given(const std::string& path) {
    const Value* value = find_path(root_, written(path));
    if (value == nullptr || value->is(Kind::kNull) || is_auto(path)) return nullptr;
    const KeySpec* key = find_key(path);
    DSL_CHECK(key != nullptr, "{} is no key of the schema", path);
    return fits_type(key->type, *value) ? value : nullptr;
}

bool KeyReader::is_auto(const std::string& path) {
    const Value* value = find_path(root_, written(path));
    const KeySpec* key = find_key(path);
    return value != nullptr && value->is(Kind::kString) && value->text == "auto" &&
           key != nullptr && takes_auto(*key);
}

std::string KeyReader::written(const std::string& path) {
    for (const KeySpec& name : schema()) {
        if (path != name.same_as) continue;
        const Value* other = find_path(root_, name.path);
        if (other == nullptr) continue;
        if (find_path(root_, path) == nullptr) return name.path;
        if (named_twice_.insert(name.path).second)
            result_.problems.push_back(
                {name.path,
                 fmt::format("is another name of {}, which is also given: remove one of them",
                             path),
                 other->origin});
    }
    return path;
}

Value KeyReader::take(const std::string& path) {
    const KeySpec* key = find_key(path);
    DSL_CHECK(key != nullptr, "{} is no key of the schema", path);
    if (const Value* value = given(path)) {
        Value whole = *value;
        if (key->type == KeyType::kInt) whole = make_value(as_integer(*value));
        record(path, whole, value->origin);
        return whole;
    }
    if (is_auto(path)) return take_auto(path);
    record(path, default_value(*key), "default");
    return default_value(*key);
}

std::optional<Value> KeyReader::trainer_value(const std::string& path) {
    const auto* trainer = std::ranges::find(kTrainerValues, path, &TrainerValue::path);
    if (trainer == kTrainerValues.end()) return std::nullopt;
    KeySpec key = *find_key(path);
    key.fallback = trainer->value;
    Value value = default_value(key);
    note_auto(path, value);
    return value;
}

Value KeyReader::take_auto(const std::string& path) {
    if (const std::optional<Value> value = trainer_value(path)) {
        record(path, *value, kAutoOrigin);
        return *value;
    }
    const Value value = default_value(*find_key(path));
    if (value.is(Kind::kNull))
        problem(path, "`auto` cannot be used here, because the key has no default: give a value");
    record(path, value, "derived: auto = DeepSpeed's default");
    return value;
}

bool KeyReader::is_true(const std::string& path) {
    const Value* const value = given(path);
    return value != nullptr && value->boolean;
}

const std::string& KeyReader::optimizer_name() const {
    return find_path(root_, "optimizer.type")->text;
}

double KeyReader::number_or(const std::string& path, double value, const std::string& whose) {
    if (has_or_auto(path)) return take_number(path);
    derive(path, make_value(value), whose);
    return value;
}

int64_t KeyReader::integer_or(const std::string& path, int64_t value, const std::string& whose) {
    if (has_or_auto(path)) return take_integer(path);
    derive(path, make_value(value), whose);
    return value;
}

void KeyReader::note_auto(const std::string& path, const Value& value) {
    autos_.push_back(fmt::format("{} {}", path, to_json(value)));
}

// Adds a note on the keys with `auto`. In configs made for Hugging Face's Trainer, the Trainer's
// command line gives the values of such keys. These values decide how well a model learns, so
// each value that is chosen here is printed.
void KeyReader::note_autos() {
    if (autos_.empty()) return;
    result_.notes.push_back(fmt::format(
        "{}: `auto` means the default of Hugging Face's Trainer: {}; to change a value, use --lr, "
        "--warmup-steps, --steps, --epochs, --micro-batch, --bf16, --fp16 or --set",
        printable(name_), join(autos_, ", ")));
}

void KeyReader::note_begun() {
    std::vector<std::string> begun;
    for (const ResolvedValue& entry : result_.values)
        if (entry.origin == kBegunOrigin)
            begun.push_back(fmt::format("{} {}", entry.path, to_json(entry.value)));
    if (!begun.empty()) choose("from the resumed run: " + join(begun, ", "));
}

int64_t as_integer(const Value& value) {
    return value.is(Kind::kInt) ? value.integer : int64_t(value.number);
}

std::string KeyReader::said_of(const std::string& path, const std::string& text) {
    const std::string name = written(path);
    const Value* value = find_path(root_, name);
    DSL_CHECK(value != nullptr, "{} is not given", path);
    return printable(fmt::format("{}: {} {}", value->origin, name, text));
}

void KeyReader::note(const std::string& path, const std::string& text) {
    result_.notes.push_back(said_of(path, text));
}

void KeyReader::warn(const std::string& path, const std::string& text) {
    result_.warnings.push_back(said_of(path, text));
}

void KeyReader::unread(const std::string& path, const std::string& reason) {
    const Value* value = given(path);
    if (value == nullptr || same_value(*value, default_value(*find_key(path)))) return;
    note(path, fmt::format("has no effect: {}", reason));
}

// Adds one note for a section that has no effect. Adds no note if the section is empty or off.
void KeyReader::note_section(const KeySpec& key, const std::string& path, const Value& value) {
    const Value* enabled = value.find("enabled");
    const bool has_switch = find_key(path + ".enabled") != nullptr;
    if (has_switch && (enabled == nullptr || !enabled->is(Kind::kBool) || !enabled->boolean))
        return;
    if (value.items.empty()) return;
    result_.notes.push_back(
        printable(fmt::format("{}: {} has no effect: {}", value.origin, path, key.note)));
}

// Reports an unknown name, which DeepSpeed ignores too. A name that is probably about the training
// gets a warning of its own, or a problem if the config already has problems. All other names share
// one note.
void KeyReader::note_ignored(const std::string& path, const std::string& name, const Value& value) {
    const std::string whole = path.empty() ? name : fmt::format("{}.{}", path, name);
    if (whole == "$schema") return;  // it is for editors, as `dslaunch config schema` says
    const auto meant = meant_key(path, name, value);
    if (!meant) {
        unknown_names_.push_back(printable(whole));
        if (unknown_origin_.empty()) unknown_origin_ = value.origin;
        return;
    }
    const std::string& advice = *meant;
    if (result_.problems.empty()) {
        result_.warnings.push_back(
            printable(fmt::format("{}: {} is unknown and ignored, as in DeepSpeed{}{}",
                                  value.origin, whole, advice.empty() ? "" : "; ", advice)));
    } else {
        result_.problems.push_back(
            {printable(whole),
             printable(fmt::format("unknown key{}{}", advice.empty() ? "" : ", ", advice)),
             value.origin});
    }
}

void KeyReader::note_unknown() {
    if (unknown_names_.empty()) return;
    result_.notes.insert(result_.notes.begin(),
                         printable(fmt::format("{}: {} {} unknown and ignored, as in DeepSpeed",
                                               unknown_origin_, join(unknown_names_, ", "),
                                               unknown_names_.size() == 1 ? "is" : "are")));
}

// Warns of a section that sets other keys but not its `enabled`, and is therefore off. Does not
// warn of `autotuning`, because the command that reads it does not need `enabled`.
void KeyReader::warn_without_switch(const std::string& path, const Value& section) {
    const KeySpec* const key = find_key(path + ".enabled");
    const bool has_switch = key != nullptr && key->path == path + ".enabled";  // not `*`
    if (!has_switch || key->status != KeyStatus::kSupported || path == "autotuning" ||
        default_value(*key).boolean || section.items.empty())
        return;
    const Value* const given = section.find("enabled");
    if (given != nullptr && !given->is(Kind::kNull)) return;
    result_.warnings.push_back(
        printable(fmt::format("{}: {} has no effect, because the section does not set `enabled`, "
                              "as in DeepSpeed: set {}.enabled to true, or remove the section",
                              section.origin, path, path)));
}

// Adds a note for each given key that would turn something on, but has no effect here, so that no
// such key is ignored silently.
void KeyReader::collect_notes(const std::string& path, const Value& value) {
    for (size_t i = 0; i < value.keys.size(); ++i) {
        std::string inner =
            path.empty() ? value.keys[i] : fmt::format("{}.{}", path, value.keys[i]);
        const KeySpec* key = find_key(inner);
        const Value& item = value.items[i];
        if (key == nullptr) {
            if (is_ignored(path, value.keys[i], item)) note_ignored(path, value.keys[i], item);
            continue;
        }
        if (item.is(Kind::kObject)) warn_without_switch(inner, item);
        if (item.is(Kind::kObject) && key->status == KeyStatus::kWithoutEffect) {
            note_section(*key, inner, item);
        } else if (item.is(Kind::kObject)) {
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

Resolved KeyReader::finish(RunConfig run) {
    // Calls written() for every key with two names, because written() reports a key that was given
    // under both names. Other code may not have read all of these keys.
    for (const KeySpec& name : schema())
        if (!name.same_as.empty()) static_cast<void>(written(name.same_as));
    note_begun();
    if (!chosen_.empty())
        result_.chosen = "chosen, because nothing sets it: " + join(chosen_, "; ");
    note_autos();
    if (!other_tool_problem(root_)) collect_notes("", root_);
    note_unknown();
    result_.config = std::move(run);
    return std::move(result_);
}

}  // namespace dslaunch::config
