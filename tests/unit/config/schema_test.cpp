#include "config/schema/schema.h"

#include <fmt/core.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/resolve/resolve.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

std::vector<std::string> one_edit_away(const std::string& word) {
    std::vector<std::string> result;
    for (size_t i = 0; i < word.size(); ++i) {
        if (word.size() > 1) result.push_back(word.substr(0, i) + word.substr(i + 1));
        result.push_back(word.substr(0, i) + "q" + word.substr(i));
        result.push_back(word.substr(0, i) + "q" + word.substr(i + 1));
        if (i + 1 < word.size() && word[i] != word[i + 1]) {
            std::string swapped = word;
            std::swap(swapped[i], swapped[i + 1]);
            result.push_back(swapped);
        }
    }
    return result;
}

// Returns the problems of a tree that has only a null, at SECTION.NAME.
std::vector<Problem> schema_problems_of(const std::string& section, const std::string& name) {
    Value tree;
    tree.kind = Value::Kind::kObject;
    std::string path = section.empty() ? name : section + "." + name;
    REQUIRE(set_path(tree, path, Value{}));
    return check_against_schema(tree);
}

}  // namespace

// Returns a value that KEY may have, other than its default.
std::optional<Value> other_value(const KeySpec& key) {
    if (key.type == KeyType::kBool) {
        Value value = default_value(key);
        value.kind = Value::Kind::kBool;
        value.boolean = !value.boolean;
        return value;
    }
    if (key.path.ends_with(".betas")) {
        return *find_path(parse_config("betas: [0.25, 0.5]", "c").root, "betas");
    }
    if (key.type == KeyType::kInt) return make_value(int64_t{7});
    if (key.type == KeyType::kFloat) return make_value(0.125);
    const std::vector<std::string> choices = split(key.allowed, '|');
    for (const std::string& choice : choices) {
        if (choice != key.fallback && choice != "null") return make_value(choice);
    }
    return {};
}

TEST_CASE("each parameter of each optimizer and scheduler is used or refused, none is ignored") {
    int used = 0, refused = 0, without_effect = 0;
    const std::set<std::string> with_end = {"WarmupDecayLR", "WarmupCosineLR", "Linear", "Cosine",
                                            "WSD"};
    for (const std::string section : {"optimizer", "scheduler"}) {
        for (const std::string& type : available_types(section)) {
            // Parameters that the type needs.
            const std::string needs = with_end.contains(type) ? R"("total_num_steps": 50)"
                                      : type == "OneCycle"
                                          ? R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2)"
                                          : "";
            const std::string text = fmt::format(R"({{"{}": {{"type": "{}", "params": {{{}}}}}}})",
                                                 section, type, needs);
            const Resolved plain = resolve(parse_config(text, "c"));
            INFO(text);
            REQUIRE(plain.problems.empty());
            for (const KeySpec& key : schema()) {
                if (!key.path.starts_with(section + ".params.")) continue;
                const auto value = other_value(key);
                INFO(key.path);
                REQUIRE(value);
                TrainConfig config = parse_config(text, "c");
                REQUIRE(set_path(config.root, key.path, *value));
                // Nesterov's method needs a momentum.
                if (key.path.ends_with(".nesterov"))
                    REQUIRE(set_path(config.root, "optimizer.params.momentum", make_value(0.5)));
                const Resolved result = resolve(config);
                if (!result.problems.empty()) {
                    ++refused;
                    continue;
                }
                if (key.status == KeyStatus::kWithoutEffect) {
                    ++without_effect;
                    continue;
                }
                ++used;
                const bool changed =
                    !(result.config.optimizer == plain.config.optimizer) ||
                    !(result.config.scheduler == plain.config.scheduler) ||
                    result.config.gradient_clipping != plain.config.gradient_clipping;
                // AdamW's decay is decoupled whatever adam_w_mode says, as in DeepSpeed.
                const bool is_mode = key.path.ends_with(".adam_w_mode");
                // 1-bit Adam and 0/1 Adam correct no bias, even if the config asks for it; a note
                // says so.
                const bool is_correction =
                    key.path.ends_with(".bias_correction") && result.config.optimizer.compresses();
                // The AdamW that Muon uses for other parameters is torch.optim's anyway.
                const bool is_torch = type == "Muon" && key.path.ends_with(".torch_adam");
                // 1-bit LAMB adds eps to the root in any case, as in DeepSpeed; a note says so.
                const bool is_root = type == "OneBitLamb" && key.path.ends_with(".eps_inside_sqrt");
                CHECK(changed !=
                      ((type == "AdamW" && is_mode) || is_correction || is_torch || is_root));
            }
        }
    }
    INFO(used << " " << refused << " " << without_effect);
    CHECK(used > 30);
    CHECK(refused > 100);
}

TEST_CASE("each key misspelled by one edit is caught, with the right suggestion nearly always") {
    int64_t edits = 0, right = 0, caught = 0;
    for (const KeySpec& key : schema()) {
        std::vector<std::string> parts = split(key.path, '.');
        std::string name = parts.back();
        if (name == "*" || key.path.find("[]") != std::string_view::npos) continue;
        parts.pop_back();
        for (std::string& part : parts) {
            if (part == "*") part = "any";
        }
        std::string section = join(parts, ".");
        std::vector<std::string> siblings = key_names(section);
        std::set<std::string> real(siblings.begin(), siblings.end());
        if (find_key(section.empty() ? "qqq" : section + ".qqq") != nullptr)
            continue;  // the section takes any name
        for (const std::string& wrong : one_edit_away(name)) {
            if (real.contains(wrong)) continue;
            ++edits;
            for (const Problem& problem : schema_problems_of(section, wrong)) {
                if (problem.message.rfind("unknown key", 0) != 0) continue;
                ++caught;
                if (problem.message == fmt::format("unknown key, did you mean `{}`?", name))
                    ++right;
            }
        }
    }
    INFO(edits << " misspellings, " << caught << " caught, " << right
               << " with the right suggestion");
    CHECK(edits > 10'000);
    CHECK(caught == edits);
    CHECK(double(right) >= 0.95 * double(edits));
}

TEST_CASE("the table is sound: unique paths, sections before their keys, defaults of their type") {
    std::set<std::string> seen;
    for (const KeySpec& key : schema()) {
        CAPTURE(key.path);
        CHECK(seen.insert(key.path).second);
        std::vector<std::string> parts = split(key.path, '.');
        parts.pop_back();
        if (!parts.empty() && parts.back() == "[]") parts.pop_back();
        if (!parts.empty()) CHECK(seen.contains(join(parts, ".")));
        CHECK((key.status == KeyStatus::kSupported || !key.note.empty()));
        CHECK(!key.doc.empty());
        Value value = default_value(key);
        if (value.is(Value::Kind::kNull) ||
            (value.is(Value::Kind::kString) && value.text == "auto"))
            continue;
        switch (key.type) {
            case KeyType::kBool:
                CHECK(value.is(Value::Kind::kBool));
                break;
            case KeyType::kInt:
                CHECK(value.is(Value::Kind::kInt));
                break;
            case KeyType::kFloat:
                CHECK((value.is(Value::Kind::kFloat) || value.is(Value::Kind::kInt)));
                break;
            case KeyType::kString:
                CHECK(value.is(Value::Kind::kString));
                break;
            case KeyType::kList:
                CHECK(value.is(Value::Kind::kList));
                break;
            default:
                break;
        }
    }
}

TEST_CASE("the table describes optimizer.type with the names of all optimizers") {
    const KeySpec* const key = find_key("optimizer.type");
    REQUIRE(key != nullptr);
    CHECK(key->doc.starts_with(join(available_types("optimizer"), ", ") + " ("));
}

TEST_CASE("another name of a key is read as the key, and beside it is a problem") {
    int64_t names_count = 0;
    for (const KeySpec& name : schema()) {
        if (name.same_as.empty()) continue;
        ++names_count;
        CAPTURE(name.path);
        const KeySpec* const key = find_key(name.same_as);
        REQUIRE(key != nullptr);
        CHECK(key->same_as.empty());
        CHECK(name.type == key->type);
        CHECK(name.status == key->status);
        if (name.status != KeyStatus::kSupported) continue;
        const auto resolved = [&](std::initializer_list<std::string> paths) {
            TrainConfig config = parse_config(
                "{zero_optimization: {stage: 3, offload_optimizer: {device: nvme, nvme_path: /d}}}",
                "c");
            const bool is_switch = key->type == KeyType::kBool;
            for (const std::string& path : paths)
                REQUIRE(set_path(config.root, path,
                                 is_switch ? make_value(true) : make_value(int64_t{2})));
            return resolve(config);
        };
        const Resolved of_name = resolved({name.path}), of_key = resolved({key->path});
        CHECK(of_name.problems.empty());
        CHECK(of_name.config == of_key.config);
        CHECK(config_text(of_name) == config_text(of_key));
        const std::vector<Problem> of_both = resolved({key->path, name.path}).problems;
        REQUIRE(of_both.size() == 1);
        CHECK(of_both.front().path == name.path);
        CHECK(of_both.front().message ==
              fmt::format("is another name of {}, which is also given: remove one of them",
                          key->path));
    }
    CHECK(names_count == 21);
}

TEST_CASE("every key is accepted with its own default and with null") {
    for (const KeySpec& key : schema()) {
        std::string path = key.path;
        bool skip = path.find('*') != std::string::npos || path.find("[]") != std::string::npos ||
                    !key.only_for.empty();
        if (skip) continue;
        CAPTURE(path);
        for (const Value& value : {Value{}, default_value(key)}) {
            Value tree;
            tree.kind = Value::Kind::kObject;
            REQUIRE(set_path(tree, path, value));
            std::vector<Problem> problems = check_against_schema(tree);
            bool presence = path.find("sparse_attention.") == 0 ||
                            path.find("datastates_ckpt.") == 0 ||
                            path.find("zeropp_loco_param.") != std::string::npos;
            CHECK(problems.size() == (presence ? 1 : 0));
        }
    }
}
