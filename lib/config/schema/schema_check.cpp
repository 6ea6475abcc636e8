// check_against_schema(): compares the user's config with the table.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>

#include "base/foreign/foreign_names.h"
#include "base/text.h"
#include "config/read/quoteless.h"
#include "config/run/optimizer_facts.h"
#include "config/schema/asking_sections.h"
#include "config/schema/meant_value.h"
#include "config/schema/schema.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

// The switches of sections that are not supported yet. Such a section is refused only if its switch
// is on. The switch is the first of these names that the schema has for the section.
constexpr std::array kGates = {"enabled", "deepcompile", "shared_parameters.enabled"};
// Sections without a switch. Such a section asks for its feature if it is present.
constexpr std::array kPresenceAsks = {"sparse_attention", "datastates_ckpt",
                                      "zero_optimization.zeropp_loco_param"};

constexpr size_t kSuggestedNameMax = 100;
// A message lists all keys of a section only if the section has at most this many keys.
constexpr size_t kSiblingsShownMax = 16;

std::string child_path(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
}

bool is_auto(const Value& value) {
    return value.is(Kind::kString) && value.text == "auto";
}

// Descriptions of the types for messages, in the order of KeyType.
constexpr std::array kWanted = {"true or false",   "an integer",
                                "a finite number", "a finite number, or a list of two",
                                "a string",        "a string or a list of strings",
                                "a list",          "an object {…}",
                                "anything"};

bool is_choice(const KeySpec& key) {
    std::string_view allowed = key.allowed;
    return !allowed.empty() && allowed[0] != '>' && allowed != "0..1";
}

bool in_range(const KeySpec& key, const Value& value) {
    std::string_view allowed = key.allowed;
    if (allowed.empty()) return true;
    if (key.type == KeyType::kFloats && value.is(Kind::kList))
        return in_range(key, value.items[0]) && in_range(key, value.items[1]);
    if (is_choice(key)) {
        std::string text =
            value.is(Kind::kString) ? value.text : fmt::format("{}", value.as_double());
        std::vector<std::string> choices = split(allowed, '|');
        return std::find(choices.begin(), choices.end(), text) != choices.end();
    }
    double number = value.as_double();
    if (allowed == ">0") return number > 0;
    if (allowed == ">=0") return number >= 0;
    return number >= 0 && number <= 1;
}

std::string range_text(const KeySpec& key) {
    std::string_view allowed = key.allowed;
    if (allowed == ">0") return "must be above 0";
    if (allowed == ">=0") return "must not be negative";
    if (allowed == "0..1") return "must be between 0 and 1";
    std::vector<std::string> choices = split(allowed, '|');
    std::erase(choices, "null");
    return "must be one of " + join(choices, ", ");
}

// Returns "; -1 means all" if VALUE is the word `all` and the schema says that a number, for
// example -1, means all for KEY. Otherwise returns "".
std::string all_text(const KeySpec& key, const Value& value) {
    const size_t end = key.doc.find(": all");
    if (!value.is(Kind::kString) || lower(value.text) != "all" || end == std::string::npos)
        return "";
    const size_t begin = key.doc.rfind(' ', end) + 1;
    return fmt::format("; {} means all", key.doc.substr(begin, end - begin));
}

// Returns "; 0 means dynamic" if VALUE is the word `dynamic` or -1, and 0 has this meaning for KEY;
// else an empty text.
std::string dynamic_text(const KeySpec& key, const Value& value) {
    const bool is_meant =
        value.is(Kind::kString)
            ? lower(value.text) == "dynamic"
            : (value.is(Kind::kInt) || value.is(Kind::kFloat)) && value.as_double() == -1;
    return is_meant && key.doc.find("; 0: dynamic") != std::string::npos ? "; 0 means dynamic" : "";
}

// Returns true for a shape of the warm-up that DeepSpeed does not know. DeepSpeed then warns and
// uses its default, log. Returns false for a word that is similar to a known shape, because it is
// probably a mistake.
bool falls_back(const KeySpec& key, const Value& value) {
    return key.path == "scheduler.params.warmup_type" &&
           !nearest(value.text, split(key.allowed, '|'));
}

// Returns true if VALUE has a type that the key PATH takes.
bool fits_key(const std::string& path, const Value& value) {
    const KeySpec* const key = find_key(path);
    return key != nullptr && fits_type(key->type, value);
}

// Returns the key of section PATH that the user probably meant by NAME: the one with the nearest
// name, or the only one of which NAME is the first or last word. A key that cannot have VALUE is
// returned only if its name differs by one letter, or if there is no other. Returns nullopt if
// there is none.
std::optional<std::string> meant_sibling(const std::string& path, const std::string& name,
                                         const Value& value) {
    std::vector<std::string> siblings = key_names(path), fitting, longer;
    const auto near = nearest(name, siblings);
    const auto fits = [&](const std::string& sibling) {
        return fits_key(child_path(path, sibling), value);
    };
    if (near && (fits(*near) || edit_distance(name, *near) < 2)) return near;
    std::ranges::copy_if(siblings, std::back_inserter(fitting), fits);
    if (auto other = nearest(name, fitting)) return other;
    if (path.empty()) return near;
    std::ranges::copy_if(fitting, std::back_inserter(longer), [&](const std::string& sibling) {
        return sibling.ends_with("_" + name) || sibling.starts_with(name + "_");
    });
    return longer.size() == 1 ? longer.front() : near;
}

// Returns the path of a key NAME in a different section if the user probably meant this key. The
// key takes VALUE, unless VALUE is a text.
std::optional<std::string> other_home(const std::string& name, const Value& value) {
    constexpr std::array kCommon = {"name", "type", "enabled", "file", "size", "value", "mode"};
    if (std::ranges::find(kCommon, name) != kCommon.end()) return std::nullopt;
    const std::string home = home_of(name);
    if (!home.empty() && fits_key(home + "." + name, value)) return home + "." + name;
    for (const KeySpec& key : schema())
        if (key.path.ends_with("." + name) && fits_type(key.type, value))
            return std::string(key.path);
    // A text may be a number that is written wrongly, such as 10k.
    return home.empty() || !value.is(Kind::kString) ? std::nullopt
                                                    : std::optional(home + "." + name);
}

// Words that occur in names of settings that affect training.
constexpr std::array kTrainingWords = {
    "lr",        "rate",     "batch",    "zero",         "stage",     "clip",         "clipping",
    "step",      "steps",    "epoch",    "epochs",       "iters",     "adapter",      "adapters",
    "lora",      "qlora",    "peft",     "bit",          "4bit",      "8bit",         "quant",
    "precision", "fp16",     "bf16",     "fp8",          "dtype",     "optim",        "optimizer",
    "scheduler", "schedule", "warmup",   "decay",        "momentum",  "model",        "data",
    "dataset",   "datasets", "grad",     "gradient",     "gradients", "accumulation", "loss",
    "weight",    "weights",  "quantize", "quantization", "moe",       "experts",      "parallel"};

bool names_training(const std::string& name) {
    return std::ranges::any_of(split(folded_name(name), '-'), [](const std::string& word) {
        return std::ranges::find(kTrainingWords, word) != kTrainingWords.end();
    });
}

// Returns the advice for a user who gave a name that only other tools use. FOREIGN is the row of
// this name.
std::string place_text(const ForeignName& foreign) {
    return foreign.key.empty() ? advice_of(foreign)
                               : fmt::format("did you mean `{}` ({})?", foreign.key, foreign.here);
}

// Returns the first row of the table of foreign names that matches a key in VALUE, at any depth.
const ForeignName* foreign_inside(const Value& value) {
    for (size_t i = 0; i < value.items.size(); ++i) {
        if (i < value.keys.size())
            if (const ForeignName* foreign = find_foreign(value.keys[i])) return foreign;
        if (const ForeignName* foreign = foreign_inside(value.items[i])) return foreign;
    }
    return nullptr;
}

class Checker {
  public:
    explicit Checker(const Value& root) : root_(root) {}

    std::vector<Problem> run() {
        if (auto other = other_tool_problem(root_)) {
            problems_.push_back(*std::move(other));
        } else {
            section("", root_, false);
        }
        return std::move(problems_);
    }

  private:
    void report(const std::string& path, std::string message, const Value& value) {
        problems_.push_back({path, std::move(message), value.origin});
    }

    // Checks the section PATH. If QUIET is true, accepts keys that are not available yet. QUIET is
    // used if an outer section was refused already or is switched off.
    void section(const std::string& path, const Value& value, bool quiet) {
        for (size_t i = 0; i < value.keys.size(); ++i) {
            std::string inner = child_path(path, value.keys[i]);
            const KeySpec* key =
                value.keys[i].find('.') == std::string::npos ? find_key(inner) : nullptr;
            if (key == nullptr) {
                unknown(path, value.keys[i], value.items[i]);
            } else {
                entry(*key, inner, value.items[i], quiet);
            }
        }
    }

    void unknown(const std::string& path, const std::string& name, const Value& value) {
        if (is_ignored(path, name, value)) return;
        std::string message = "unknown key";
        std::vector<std::string> siblings = key_names(path);
        if (name.find('.') != std::string::npos) {
            message += ": a key must not contain dots; write nested objects";
        } else if (name.size() > kSuggestedNameMax) {
            // Suggests no key, because all known keys are shorter, and computing the distances to
            // such a long name would take too much time.
        } else if (path == "dslaunch.lora" && (name == "bias" || name == "use_dora")) {
            message += ": bias and DoRA are not supported: remove it";
        } else if (const ForeignName* const foreign = find_foreign(name);
                   foreign != nullptr && path.empty()) {
            message += (foreign->key.empty() ? ": " : ", ") + place_text(*foreign);
        } else if (foreign != nullptr && foreign->key.starts_with(path + ".")) {
            // Suggests the whole path if the key belongs in an inner section, because --set also
            // accepts a whole path.
            const std::string_view rest = foreign->key.substr(path.size() + 1);
            message += fmt::format(", did you mean `{}`{}?",
                                   rest.find('.') == rest.npos ? rest : foreign->key,
                                   set_text(std::string(foreign->key), value));
        } else if (const std::string joined = joined_name_text(name); !joined.empty()) {
            message += joined;
        } else if (auto near = meant_sibling(path, name, value)) {
            message += fmt::format(", did you mean `{}`{}?", *near,
                                   set_text(child_path(path, *near), value));
        } else if (const ForeignName* inner = path.empty() ? foreign_inside(value) : nullptr) {
            message += fmt::format(" that contains `{}`: {}", inner->name, place_text(*inner));
        } else if (foreign != nullptr && path == "dslaunch") {
            message += (foreign->key.empty() ? ": " : ", ") + place_text(*foreign);
        } else if (auto home = other_home(name, value)) {
            message += fmt::format(", did you mean `{}`{}?", *home, set_text(*home, value));
        } else if (!path.empty() && siblings.size() <= kSiblingsShownMax) {
            message += fmt::format("; the keys of `{}` are {}", path, join(siblings, ", "));
        }
        report(child_path(path, name), std::move(message), value);
    }

    void entry(const KeySpec& key, const std::string& path, const Value& value, bool quiet) {
        if (value.is(Kind::kNull)) return;
        if (is_auto(value) && key.type != KeyType::kObject && takes_auto(key)) return;
        if (!fits_type(key.type, value)) {
            const std::vector<std::string> keys = key_names(path);
            const std::string meant = meant_setting(path, value);
            const bool lists_keys = key.type == KeyType::kObject && meant.empty() &&
                                    !keys.empty() && keys.size() <= kSiblingsShownMax;
            return report(path,
                          fmt::format("must be {}{}, not {}{}{}{}", kWanted[size_t(key.type)],
                                      lists_keys ? " with keys of " + join(keys, ", ") : "",
                                      describe(value), meant.empty() ? "" : ": write " + meant,
                                      all_text(key, value), dynamic_text(key, value)),
                          value);
        }
        if (!in_range(key, value) && !falls_back(key, value)) {
            return report(path,
                          fmt::format("{}, not {}{}", range_text(key), shown(value),
                                      dynamic_text(key, value)),
                          value);
        }
        if (wrong_type_of_owner(key, path, value)) return;
        if (key.type == KeyType::kObject) return inner_section(key, path, value, quiet);
        if (key.type == KeyType::kList) elements(path, value, quiet);
        if (quiet || key.status != KeyStatus::kNotYet) return;
        if (asks_by_presence(path) && value.items.empty()) return;
        if (!same_value(value, default_value(key))) report(path, key.note, value);
    }

    void elements(const std::string& path, const Value& value, bool quiet) {
        const std::string of_element = path + ".[].";
        if (std::ranges::none_of(
                schema(), [&](const KeySpec& key) { return key.path.starts_with(of_element); }))
            return;
        for (const Value& item : value.items) {
            if (item.is(Kind::kObject)) {
                section(path + ".[]", item, quiet);
            } else {
                report(path, "every element must be an object {…}, not " + describe(item), item);
            }
        }
    }

    void inner_section(const KeySpec& key, const std::string& path, const Value& value,
                       bool quiet) {
        if (!quiet && key.status == KeyStatus::kNotYet && !value.items.empty()) {
            const bool presence = asks_by_presence(path);
            if (presence) report(path, key.note, value);
            quiet = presence || gate(key, path, value);
        }
        section(path, value, quiet || switched_off(key, path, value) || owner_not_yet(path));
    }

    // Returns true for a section that asks for nothing because its switch is off.
    static bool switched_off(const KeySpec& key, const std::string& path, const Value& value) {
        if (key.status != KeyStatus::kSupported) return false;
        if (find_key(path + ".enabled") != nullptr) {
            const Value* enabled = find_path(value, "enabled");
            return enabled == nullptr || !enabled->is(Kind::kBool) || !enabled->boolean;
        }
        const KeySpec* device_key = find_key(path + ".device");
        if (device_key == nullptr || device_key->fallback != "none") return false;
        const Value* device = find_path(value, "device");
        return device == nullptr || !device->is(Kind::kString) || device->text == "none" ||
               is_auto(*device);
    }

    // Returns true if the section has a switch, which alone decides whether the section is refused.
    // Reports the switch if it is on.
    bool gate(const KeySpec& key, const std::string& path, const Value& value) {
        const auto name = switch_name_of(path);
        if (!name) return false;
        const Value* given = find_path(value, *name);
        const bool on = given != nullptr && given->is(Kind::kBool) && given->boolean;
        if (on) report(fmt::format("{}.{}", path, *name), key.note, *given);
        return true;
    }

    [[nodiscard]] std::string owner_type(const std::string& path) const {
        const Value* type = find_path(root_, split(path, '.').front() + ".type");
        return type != nullptr && type->is(Kind::kString) ? lower(type->text) : "";
    }

    // Returns true for the parameters of an optimizer or scheduler whose type is refused: the
    // parameters are not refused separately.
    [[nodiscard]] bool owner_not_yet(const std::string& path) const {
        if (path != "optimizer.params" && path != "scheduler.params") return false;
        const auto& types = available_types(split(path, '.').front());
        return std::none_of(types.begin(), types.end(), [&](const std::string& type) {
            return lower(type) == owner_type(path);
        });
    }

    bool wrong_type_of_owner(const KeySpec& key, const std::string& path, const Value& value) {
        if (key.only_for.empty()) return false;
        std::string type = owner_type(path);
        std::vector<std::string> owners = split(key.only_for, '|');
        bool known = false;
        for (const KeySpec& other : schema()) {
            std::vector<std::string> names = split(other.only_for, '|');
            known = known ||
                    (!type.empty() && std::find(names.begin(), names.end(), type) != names.end());
        }
        if (!known || std::find(owners.begin(), owners.end(), type) != owners.end()) return false;
        report(path,
               fmt::format("is not a parameter of `{}`, only of {}", type, join(owners, ", ")),
               value);
        return true;
    }

    const Value& root_;
    std::vector<Problem> problems_;
};

}  // namespace

std::optional<std::string_view> switch_name_of(std::string_view path) {
    for (const char* name : kGates)
        if (find_key(fmt::format("{}.{}", path, name)) != nullptr) return name;
    return std::nullopt;
}

bool asks_by_presence(std::string_view path) {
    return std::find(kPresenceAsks.begin(), kPresenceAsks.end(), path) != kPresenceAsks.end();
}

bool is_strings(const Value& value) {
    return value.is(Kind::kString) ||
           (value.is(Kind::kList) && std::ranges::all_of(value.items, [](const Value& item) {
                return item.is(Kind::kString);
            }));
}

bool fits_type(KeyType type, const Value& value) {
    switch (type) {
        case KeyType::kBool:
            return value.is(Kind::kBool);
        case KeyType::kInt:
            // 5e8 is accepted as an integer. Doubles from 9.2e18 on do not fit in an int64_t.
            return value.is(Kind::kInt) ||
                   (value.is(Kind::kFloat) && std::abs(value.number) < 9.2e18 &&
                    std::floor(value.number) == value.number);
        case KeyType::kFloat:
            return value.is(Kind::kInt) || (value.is(Kind::kFloat) && std::isfinite(value.number));
        case KeyType::kFloats:
            if (!value.is(Kind::kList)) return fits_type(KeyType::kFloat, value);
            return value.items.size() == 2 && fits_type(KeyType::kFloat, value.items[0]) &&
                   fits_type(KeyType::kFloat, value.items[1]);
        case KeyType::kString:
            return value.is(Kind::kString);
        case KeyType::kStrings:
            return is_strings(value);
        case KeyType::kList:
            return value.is(Kind::kList);
        case KeyType::kObject:
            return value.is(Kind::kObject);
        case KeyType::kFree:
            return true;
    }
    return false;
}

const std::vector<std::string>& available_types(std::string_view section) {
    static const std::vector<std::string> optimizers = [] {
        std::vector<std::string> types;
        for (const OptimizerFacts& facts : kOptimizerFacts) types.emplace_back(facts.type);
        return types;
    }();
    static const std::vector<std::string> schedulers = {
        "WarmupLR",    "WarmupDecayLR", "WarmupCosineLR", "OneCycle",
        "LRRangeTest", "Linear",        "Cosine",         "WSD"};
    return section == "optimizer" ? optimizers : schedulers;
}

std::string types_text(std::string_view section) {
    std::vector<std::string> types = available_types(section);
    const std::string last = types.back();
    types.pop_back();
    return join(types, ", ") + " or " + last;
}

bool is_ignored(const std::string& path, const std::string& name, const Value& value) {
    constexpr size_t kShortName = 6;
    if (!path.empty() && path != "pipeline") return false;
    if (value.origin.starts_with("--")) return false;
    const std::string inner = child_path(path, name);
    if (find_key(inner) != nullptr || name.find('.') != std::string::npos) return false;
    if (name.starts_with('_') || name.size() > kSuggestedNameMax) return true;
    if (find_key("dslaunch." + inner) != nullptr) return false;  // not a key of DeepSpeed
    const auto near = nearest(name, key_names(path));
    return !near || edit_distance(name, *near) > (name.size() < kShortName ? 1U : 2U);
}

std::optional<std::string> meant_key(const std::string& path, const std::string& name,
                                     const Value& value) {
    if (name.starts_with('_') || name.size() > kSuggestedNameMax) return std::nullopt;
    if (path.empty()) {
        if (const ForeignName* foreign = find_foreign(name)) return place_text(*foreign);
        if (const std::string home = home_of(name); !home.empty())
            return fmt::format("did you mean `{}.{}`?", home, name);
        if (const ForeignName* inner = foreign_inside(value))
            return fmt::format("it contains `{}`: {}", inner->name, place_text(*inner));
    }
    if (path.empty() && value.is(Kind::kObject))
        for (const std::string& inner : value.keys)
            if (const KeySpec* const key = find_key(inner);
                key != nullptr && key->type == KeyType::kObject)
                return fmt::format("its `{}` belongs at the top level of the config", inner);
    if (!names_training(name)) return std::nullopt;
    const auto near = nearest(name, key_names(path));
    return near ? fmt::format("did you mean `{}`?", child_path(path, *near)) : std::string();
}

std::string home_of(const std::string& name) {
    if (find_key("dslaunch." + name) != nullptr) return "dslaunch";
    for (const KeySpec& key : schema()) {
        const std::string_view path = key.path;
        const size_t dot = path.rfind('.');
        if (dot != std::string_view::npos && path.substr(dot + 1) == name)
            return std::string(path.substr(0, dot));
    }
    return {};
}

namespace {

// Returns a problem if no key of TREE is known, except `dslaunch` and keys from the command line,
// and the settings are inside one of its keys, such as `deepspeed`.
std::optional<Problem> wrapper_problem(const Value& tree) {
    const auto is_known = [](const std::string& name) { return find_key(name) != nullptr; };
    for (size_t i = 0; i < tree.keys.size(); ++i)
        if (is_known(tree.keys[i]) && tree.keys[i] != "dslaunch" &&
            !tree.items[i].origin.starts_with("--"))
            return std::nullopt;
    for (size_t i = 0; i < tree.keys.size(); ++i) {
        if (is_known(tree.keys[i])) continue;
        const Value& wrapper = tree.items[i];
        const auto inner = std::ranges::find_if(wrapper.keys, is_known);
        if (inner == wrapper.keys.end()) continue;
        return Problem{tree.keys[i],
                       fmt::format("is not a section of the config, so nothing inside is used: "
                                   "move `{}` to the top level, by removing `{}` and its braces",
                                   join(wrapper.keys, "`, `"), tree.keys[i]),
                       wrapper.origin};
    }
    return std::nullopt;
}

}  // namespace

std::optional<Problem> other_tool_problem(const Value& tree) {
    const Value* const distributed = tree.find("distributed_type");
    if (distributed != nullptr && tree.find("compute_environment") != nullptr)
        return Problem{"distributed_type",
                       "this is accelerate's own config, not a ds_config.json: give the file that "
                       "its deepspeed_config.deepspeed_config_file names, or write its zero_stage "
                       "as zero_optimization.stage and mixed_precision: bf16 as bf16.enabled: true",
                       distributed->origin};
    if (const Value* const form = tree.find("$schema");
        form != nullptr && form->text.find("json-schema.org") != std::string::npos &&
        tree.find("properties") != nullptr)
        return Problem{"$schema",
                       "this is a JSON Schema, as `dslaunch config schema` prints it for editors, "
                       "not a config: leave --config out, or begin a config with {}",
                       form->origin};
    for (const char* name : {"base_model", "model_name_or_path"})
        if (const Value* model = tree.find(name); model && !model->origin.starts_with("--"))
            return Problem{
                name,
                "this is a recipe of axolotl, LLaMA-Factory or TRL, not a ds_config.json: give the "
                "model as the first argument, prepare the data with `dslaunch data prepare` and "
                "give the rest as options; docs/help/cheat-sheet.md lists them",
                model->origin};
    if (const Value* const method = tree.find("peft_type"))
        return Problem{"peft_type",
                       "this is the adapter_config.json of an adapter, not a ds_config.json: leave "
                       "--config out; --lora r=16,alpha=32 trains a new adapter",
                       method->origin};
    if (const Value* model = tree.find("model_type"); model && tree.find("architectures"))
        return Problem{"model_type",
                       "this is the config.json of a model, not a ds_config.json: give the model's "
                       "folder as the first argument, and remove --config",
                       model->origin};
    return wrapper_problem(tree);
}

std::vector<Problem> check_against_schema(const Value& tree) {
    return Checker(tree).run();
}

}  // namespace dslaunch::config
