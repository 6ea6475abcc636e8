// The JSON Schema of configs. A small validator knows the words that the schema uses. Its answers
// are compared with the checker that every run has. What the checker accepts must fit the schema,
// and what it refuses must not, except if the refusal depends on other values.
#include "config/editor/json_schema.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/editor/near_names.h"
#include "config/resolve/key_reader.h"
#include "config/resolve/resolve.h"
#include "config/schema/schema.h"
#include "support/catch.h"
#include "support/places.h"
#include "unit/config/resolved.h"

using namespace dslaunch;
using namespace dslaunch::config;
using Json = nlohmann::json;

namespace {

// Validates values by the schema's words. A word that it does not know is an error.
class Validator {
  public:
    explicit Validator(const Json& root) : root_(root) {}

    bool fits(const Json& value, const Json& schema) {
        if (schema.is_boolean()) return schema.get<bool>();
        for (const auto& [word, rule] : schema.items())
            if (!holds(word, rule, value, schema)) return false;
        return true;
    }

  private:
    static bool has_type(const Json& value, const std::string& type) {
        if (type == "integer")
            return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
        return type == "null"      ? value.is_null()
               : type == "boolean" ? value.is_boolean()
               : type == "number"  ? value.is_number()
               : type == "string"  ? value.is_string()
               : type == "array"   ? value.is_array()
                                   : value.is_object();
    }

    // Returns true if TEXT contains the pattern. There are many patterns, and each is used often.
    bool matches(const std::string& pattern, const std::string& text) {
        auto found = patterns_.find(pattern);
        if (found == patterns_.end()) found = patterns_.emplace(pattern, std::regex(pattern)).first;
        return std::regex_search(text, found->second);
    }

    bool all_members_fit(const Json& value, const Json& schema) {
        for (const auto& [name, item] : value.items()) {
            bool is_known = false;
            if (schema.contains("properties") && schema["properties"].contains(name)) {
                is_known = true;
                if (!fits(item, schema["properties"][name])) return false;
            }
            if (schema.contains("patternProperties"))
                for (const auto& [pattern, inner] : schema["patternProperties"].items())
                    if (matches(pattern, name)) {
                        is_known = true;
                        if (!fits(item, inner)) return false;
                    }
            if (!is_known && schema.contains("additionalProperties") &&
                !fits(item, schema["additionalProperties"]))
                return false;
        }
        return true;
    }

    bool holds(const std::string& word, const Json& rule, const Json& value, const Json& schema) {
        const auto inside = [&](const Json& inner) { return fits(value, inner); };
        static const std::set<std::string> notes = {
            "$schema",     "title",        "description",        "default",
            "definitions", "errorMessage", "deprecationMessage", "doNotSuggest",
            "then"};
        if (notes.contains(word)) return true;
        if (word == "$ref") return inside(root_["definitions"][rule.get<std::string>().substr(14)]);
        if (word == "enum")
            return std::any_of(rule.begin(), rule.end(),
                               [&](const Json& one) { return one == value; });
        if (word == "const") return rule == value;
        if (word == "not") return !inside(rule);
        if (word == "anyOf") return std::any_of(rule.begin(), rule.end(), inside);
        if (word == "allOf") return std::all_of(rule.begin(), rule.end(), inside);
        if (word == "if") return !inside(rule) || inside(schema["then"]);
        if (word == "type")
            return rule.is_string() ? has_type(value, rule.get<std::string>())
                                    : std::any_of(rule.begin(), rule.end(), [&](const Json& one) {
                                          return has_type(value, one.get<std::string>());
                                      });
        if (word == "pattern") return !value.is_string() || matches(rule, value);
        if (word == "minimum") return !value.is_number() || value >= rule;
        if (word == "maximum") return !value.is_number() || value <= rule;
        if (word == "exclusiveMinimum") return !value.is_number() || value > rule;
        if (word == "minItems") return !value.is_array() || value.size() >= rule;
        if (word == "maxItems") return !value.is_array() || value.size() <= rule;
        if (word == "required")
            return !value.is_object() ||
                   std::all_of(rule.begin(), rule.end(), [&](const Json& one) {
                       return value.contains(one.get<std::string>());
                   });
        if (word == "items")
            return !value.is_array() ||
                   std::all_of(value.begin(), value.end(),
                               [&](const Json& one) { return fits(one, rule); });
        if (word == "properties") return !value.is_object() || all_members_fit(value, schema);
        if (word == "patternProperties" || word == "additionalProperties")
            return true;  // checked by all_members_fit()
        FAIL("the schema uses the word " + word);
        return false;
    }

    const Json& root_;
    std::map<std::string, std::regex> patterns_;
};

const Json& schema_json() {
    static const Json json = Json::parse(json_schema());
    return json;
}

bool fits(const std::string& config) {
    static Validator validator(schema_json());
    return validator.fits(Json::parse(config, nullptr, true, true), schema_json());
}

// Returns the problems that the checker finds, joined; empty: none.
std::string json_schema_problems_of(const std::string& config) {
    return test::texts_of(resolve(parse_config(config, "c")).problems);
}

// Returns a config that has only TEXT at PATH. A list in PATH gets one element.
std::string json_schema_config_of(const std::string& path, const std::string& text) {
    std::string config = text;
    std::vector<std::string> parts = split(path, '.');
    std::reverse(parts.begin(), parts.end());
    for (const std::string& part : parts)
        config = part == "[]" ? fmt::format("[{}]", config)
                              : fmt::format(R"({{"{}": {}}})", part == "*" ? "any" : part, config);
    return config;
}

}  // namespace

TEST_CASE("the schema has every key, with its meaning and its default") {
    for (const KeySpec& key : schema()) {
        INFO(key.path);
        const Json* at = &schema_json();
        bool is_left_out = false;
        for (const std::string& part : split(key.path, '.')) {
            const char* const place = part == "*" ? "additionalProperties" : "properties";
            // A key that must not be given says nothing about its content.
            is_left_out = is_left_out || (at->contains("enum") && !at->contains("properties"));
            if (is_left_out) break;
            if (part == "[]") {
                const Json& list = at->contains("items") ? *at : (*at)["anyOf"][0];
                at = &list["items"];
                continue;
            }
            REQUIRE(at->contains(place));
            at = part == "*" ? &(*at)[place] : &(*at)[place][part];
        }
        if (is_left_out) continue;
        REQUIRE(at->is_object());
        CHECK((*at)["description"].get<std::string>().starts_with(key.doc));
        if (key.type != KeyType::kObject && key.fallback != "null")
            CHECK((*at)["default"] == Json::parse(to_json(default_value(key))));
        if (key.status == KeyStatus::kNotYet)
            CHECK((*at)["description"].get<std::string>().find("Not supported: ") !=
                  std::string::npos);
    }
}

TEST_CASE("the schema of a section is that part of the whole schema") {
    for (const char* section : {"zero_optimization", "scheduler", "dslaunch"}) {
        INFO(section);
        const Json part = Json::parse(json_schema(section));
        CHECK(part["title"] == section);
        CHECK(part["properties"] == schema_json()["properties"][section]["properties"]);
    }
}

TEST_CASE("each key takes its default, null and auto in the schema as in the checker") {
    size_t compared = 0;
    for (const KeySpec& key : schema()) {
        if (key.path.find("[]") != std::string::npos) continue;
        std::vector<std::string> values = {"null",     to_json(default_value(key)),
                                           "\"auto\"", "7",
                                           "-3",       "true",
                                           "\"word\"", "[1, 2]",
                                           "\"TRUE\"", "{\"unknown_name\": 1}"};
        if (key.allowed.find('|') != std::string::npos)
            for (const std::string& word : split(key.allowed, '|'))
                values.push_back(parse_int(word) || word == "null" ? word : "\"" + word + "\"");
        for (const std::string& value : values) {
            const std::string config = json_schema_config_of(key.path, value);
            INFO(config);
            ++compared;
            const auto found = check_against_schema(in_one_form(parse_config(config, "c").root));
            // Inside sections, a value may be refused because of other values.
            const bool may_depend = key.path.find('.') != std::string::npos;
            if (!found.empty() && !may_depend) CHECK(!fits(config));
            if (found.empty() && json_schema_problems_of(config).empty()) CHECK(fits(config));
        }
    }
    CHECK(compared > 6000);
}

TEST_CASE("wrong configs do not fit the schema") {
    for (const char* config : {
             R"({"train_batch_size": 0})",
             R"({"train_batch_size": "8"})",
             R"({"train_batch_size": 1.5})",
             R"({"train_batch_sizes": 8})",
             R"({"gradient_cliping": 1.0})",
             R"({"zero_optimisation": {"stage": 2}})",
             R"({"optimzer": {"type": "AdamW"}})",
             R"({"fp61": {"enabled": true}})",
             R"({"zero_optimization.stage": 2})",
             R"({"zero_optimization": {"stage": 4}})",
             R"({"zero_optimization": {"stages": 2}})",
             R"({"zero_optimization": {"offload_optimizer": {"device": "disk"}}})",
             R"({"zero_optimization": {"offload_param": {"device": "nvme", "path": "/x"}}})",
             R"({"optimizer": {"type": "Adamm"}})",
             R"({"optimizer": {"type": "AdamW", "params": {"lr": -1}}})",
             R"({"optimizer": {"type": "AdamW", "params": {"momentum": 0.9}}})",
             R"({"optimizer": {"type": "sgd", "params": {"betas": [0.9, 0.99]}}})",
             R"({"optimizer": {"type": "AdamW", "params": {"learning_rate": 1}}})",
             R"({"scheduler": {"type": "WarmupLR", "params": {"cycle_min_lr": 0.1}}})",
             R"({"scheduler": {"type": "warmuplr"}})",
             R"({"graph_harvesting": true})",
             R"({"curriculum_learning": {"enabled": true}})",
             R"({"sparse_attention": {"mode": "fixed"}})",
             R"({"zero_optimization": {"zeropp_loco_param": {"err_beta": 0.5}}})",
             R"({"steps": 5})",
             R"({"lora": {"r": 8}})",
             R"({"pipeline": {"schedule": "1f1b"}})",
             R"({"dslaunch": {"step": 5}})",
             R"({"dslaunch": {"data": {"train": 5}}})",
             R"({"dslaunch": {"data": {"dtype": "int16"}}})",
             R"({"dslaunch": {"optimizer": {"groups": [{"matches": "*"}]}}})",
             R"({"dslaunch": {"lora": {"r": 0}}})",
             R"({"gradient_clipping": "1.0"})",
             R"({"bf16": {"enabled": "perhaps"}})",
             R"({"fp16": true})",
             R"([])",
         }) {
        INFO(config);
        CHECK(!fits(config));
        CHECK(!json_schema_problems_of(config).empty());
    }
}

TEST_CASE("configs as people write them fit the schema") {
    for (const char* config : {
             R"({})",
             R"({"$schema": "./ds_config.schema.json", "train_batch_size": 8})",
             R"({"_comment": "mine", "_fp16": 1, "author": {"name": "me"}})",
             R"({"train_batch_size": "auto", "gradient_accumulation_steps": "auto"})",
             R"({"zero_optimization": true})",
             R"({"zero_optimization": {"stage": "2", "overlap_comm": "true"}})",
             R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})",
             R"({"torch_autocast": {"enabled": true, "dtype": "torch.bfloat16"}})",
             R"({"communication_data_type": "FP16"})",
             R"({"optimizer": {"type": "adam", "params": {"lr": "auto", "betas": "auto"}}})",
             R"({"optimizer": {"type": "AdamW", "params": {"momentum": null}}})",
             R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "sigmoid"}}})",
             R"({"curriculum_learning": {"enabled": false, "curriculum_type": "seqlen"}})",
             R"({"graph_harvesting": false, "datastates_ckpt": false, "sparse_attention": {}})",
             R"({"sparse_gradients": true, "checkpoint": {"load_universal": true}})",
             R"({"bf16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500,
                          "initial_scale_power": 12, "hysteresis": 3, "min_loss_scale": 2}})",
             R"({"fp16": {"enabled": true, "opt_level": "O2"}})",
             R"({"dslaunch": {"optimizer": {"groups": [{"match": ["*.bias"], "lr": 0.1}]}}})",
             R"({"dslaunch": {"data": {"columns": {"x": "pixels"}}}})",
         }) {
        INFO(config);
        CHECK(json_schema_problems_of(config).empty());
        CHECK(fits(config));
    }
    const Resolved named = resolve(parse_config(R"({"$schema": "./x.json", "mine": 1})", "c"));
    CHECK(join(named.notes, " ").find("mine is unknown") != std::string::npos);
    CHECK(join(named.notes, " ").find("$schema") == std::string::npos);
    size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             test::source_dir() + std::string("/examples"))) {
        if (entry.path().filename() != "ds_config.json") continue;
        INFO(entry.path());
        std::ifstream file(entry.path());
        CHECK(fits({std::istreambuf_iterator<char>(file), {}}));
        ++files;
    }
    CHECK(files >= 3);
}

TEST_CASE("a pattern of mistyped names matches no known name and nothing that is ignored") {
    const std::vector<std::string> known = key_names("");
    for (const std::string& name : known) {
        INFO(name);
        const std::regex pattern(near_names_pattern(name, known));
        for (const std::string& other : known) CHECK(!std::regex_search(other, pattern));
        std::vector<std::string> typed = {name + "s", "x" + name, "_" + name};
        for (size_t i = 0; i < name.size(); ++i) {
            typed.push_back(name.substr(0, i) + name.substr(i + 1));
            typed.push_back(name.substr(0, i) + "x" + name.substr(i + 1));
            typed.push_back(name.substr(0, i) + "xy" + name.substr(i + 1));
            if (i > 0 && name[i] != name[i - 1])
                typed.push_back(name.substr(0, i - 1) + name[i] + name[i - 1] + name.substr(i + 1));
        }
        size_t matched = 0;
        for (const std::string& word : typed) {
            if (find_key(word) != nullptr) continue;
            INFO(word);
            const bool is_match = std::regex_search(word, pattern);
            if (is_match) CHECK(!is_ignored("", word, make_value(true)));
            matched += is_match;
        }
        CHECK(matched >= 2 * name.size());
    }
}
