// compression_training in the resolved config.
#include <algorithm>

#include "base/text.h"
#include "config/read/train_config.h"
#include "config/resolve/resolve.h"
#include "support/catch.h"
#include "support/text_tools.h"
#include "unit/config/resolved.h"

namespace dslaunch::compression_config_tests {

using namespace config;

namespace {

Resolved resolved(const std::string& section, const std::string& more = "") {
    const std::string text =
        R"({"train_micro_batch_size_per_gpu": 1, "compression_training": )" + section + more + "}";
    return resolve(parse_config(text, "ds_config.json"), {});
}

// Returns all problems, one a line.
std::string problems(const std::string& section, const std::string& more = "") {
    return test::texts_of(resolved(section, more).problems);
}

std::string weights(const std::string& shared, const std::string& params) {
    return R"({"weight_quantization": {"shared_parameters": {"enabled": true)" + shared +
           R"(}, "different_groups": {"wq": {"params": {)" + params +
           R"(}, "modules": ["attention.self", "\\w+.output$"]}}}})";
}

}  // namespace

TEST_CASE("compression_training becomes groups with DeepSpeed's defaults") {
    const Resolved found = resolved(weights("", R"("start_bits": 8, "target_bits": 4)"));
    CHECK(found.problems.empty());
    const WeightQuantization& rounding = found.config.compression.weights;
    CHECK_FALSE(rounding.in_forward);
    CHECK(rounding.is_symmetric);
    CHECK_FALSE(rounding.is_stochastic);
    CHECK(rounding.groups == 1);
    CHECK(rounding.offset == 0);
    REQUIRE(rounding.parts.size() == 1);
    CHECK(rounding.parts[0].modules == std::vector<std::string>{"attention.self", "\\w+.output$"});
    CHECK(rounding.parts[0].start_bits == 8);
    CHECK(rounding.parts[0].target_bits == 4);
    CHECK(rounding.parts[0].period == 1);
    const Resolved pruned = resolved(
        R"({"row_pruning": {"shared_parameters": {"enabled": true, "method": "topk"},
            "different_groups": {"rp": {"params": {"dense_ratio": 0.5}, "modules": ["fc"],
                                        "related_modules": [["out", "next"]]}}},
            "activation_quantization": {"shared_parameters": {"enabled": true},
            "different_groups": {"aq": {"params": {"bits": 8}}}}})");
    CHECK(pruned.problems.empty());
    const CompressionConfig& config = pruned.config.compression;
    CHECK(config.rows.learns);
    CHECK(config.rows.offset == 1000);
    REQUIRE(config.rows.parts.size() == 1);
    CHECK(config.rows.parts[0].related == std::vector<std::vector<std::string>>{{"out", "next"}});
    CHECK(config.activations.offset == 1000);
    CHECK_FALSE(config.activations.is_static);
    CHECK(config.activations.parts.at(0).modules == std::vector<std::string>{"*"});
    CHECK(config.weights.parts.empty());
}

TEST_CASE("a method that is off asks for nothing, whatever else it says") {
    const Resolved found = resolved(
        R"({"weight_quantization": {"shared_parameters": {"enabled": false},
            "different_groups": {"wq": {"params": {"start_bits": 8, "target_bits": 9}}}},
            "sparse_pruning": {"shared_parameters": {"enabled": false,
                                                     "method": "snip_momentum"}}})",
        R"(, "dslaunch": {"lora": {"r": 4}})");
    CHECK(found.problems.empty());
    CHECK_FALSE(found.config.compression.changes_graph());
}

TEST_CASE("mistakes in compression_training are named with their keys") {
    const std::string bits = R"("start_bits": 8, "target_bits": 4)";
    for (const auto& [section, message] : std::vector<std::pair<std::string, std::string>>{
             {weights("", R"("start_bits": 4, "target_bits": 8)"),
              "params.start_bits: must not be below target_bits"},
             {weights("", R"("start_bits": 8)"), "target_bits: is missing"},
             {weights("", R"("start_bits": 8, "target_bits": 40)"), "must be at most 24"},
             {weights(R"(, "quantization_type": "asymmetric")",
                      R"("start_bits": 8, "target_bits": 2)"),
              "need quantization_type symmetric"},
             {weights(R"(, "rounding": "stochastic")", R"("start_bits": 8, "target_bits": 1)"),
              "need rounding nearest"},
             {R"({"weight_quantization": {"shared_parameters": {"enabled": true}}})",
              "different_groups: is missing"},
             {R"({"activation_quantization": {"shared_parameters": {"enabled": true},
                  "different_groups": {"a": {"params": {"bits": 2}}}}})",
              "params.bits: must be 4 to 16"},
             {R"({"activation_quantization": {"shared_parameters": {"enabled": true},
                  "different_groups": {"a": {"params": {"bits": 8}, "modules": ["(a"]}}}})",
              "modules: `(a` is not a regular expression"},
             {R"({"sparse_pruning": {"shared_parameters": {"enabled": true,
                  "method": "snip_momentum"}, "different_groups": {"a": {"params":
                  {"dense_ratio": 0.5}}}}})",
              "snip_momentum is not available"},
             {R"({"sparse_pruning": {"shared_parameters": {"enabled": true},
                  "different_groups": {"a": {"params": {"dense_ratio": 0}}}}})",
              "dense_ratio: must be above 0"},
             {R"({"head_pruning": {"shared_parameters": {"enabled": true, "method": "l1",
                  "num_heads": 2}, "different_groups": {"a": {"params": {"dense_ratio": 0.5}}}}})",
              "prunes heads with topk only"},
             {R"({"head_pruning": {"shared_parameters": {"enabled": true},
                  "different_groups": {"a": {"params": {"dense_ratio": 0.5}}}}})",
              "num_heads: is missing"},
             {R"({"row_pruning": {"shared_parameters": {"enabled": true},
                  "different_groups": {"a": {"params": {"dense_ratio": 0.5}, "modules": ["a", "b"],
                  "related_modules": [["c"]]}}}})",
              "related_modules: has 1 lists, but there are 2 modules"}}) {
        INFO(section);
        CHECK_THAT(problems(section), Catch::Contains(message));
    }
    CHECK(problems(weights("", bits)).empty());
    for (const auto& [more, what] : std::vector<std::pair<std::string, std::string>>{
             {R"("lora": {"r": 4})", "dslaunch.lora"},
             {R"("tensor": {"size": 2})", "dslaunch.tensor"},
             {R"("samples": {"prompts": ["a"]})", "dslaunch.samples"}})
        CHECK_THAT(problems(weights("", bits), R"(, "dslaunch": {)" + more + "}"),
                   Catch::Contains("compression_training: cannot be combined with " + what));
}

TEST_CASE("a group of no modules is refused, and related modules count only where rows go") {
    const std::string of_elements =
        R"({"sparse_pruning": {"shared_parameters": {"enabled": true, "schedule_offset": 0},
            "different_groups": {"s": {"params": {"dense_ratio": 0.5}, "modules": ["fc"],
                                       "related_modules": [["out"]]}}}})";
    const Resolved found = resolved(of_elements);
    CHECK(found.problems.empty());
    CHECK(found.config.compression.sparse.parts.at(0).related.empty());
    CHECK_THAT(join(found.notes, "\n"), Catch::Contains("related_modules has no effect"));
    CHECK_THAT(problems(R"({"sparse_pruning": {"shared_parameters": {"enabled": true},
                            "different_groups": {"s": {"params": {"dense_ratio": 0.5},
                                                       "modules": []}}}})"),
               Catch::Contains("s.modules: is empty"));
}

TEST_CASE("held-out losses do not choose among weights that are compressed differently") {
    const auto found = [](const std::string& section, const std::string& own) {
        return problems(section, R"(, "dslaunch": {"data": {"train": "a.bin", "context": 8,
                                     "eval_fraction": 0.1}, "eval_interval": 2, )" +
                                     own + "}");
    };
    const auto masked = [](int offset) {
        return R"({"row_pruning": {"shared_parameters": {"enabled": true, "schedule_offset": )" +
               std::to_string(offset) +
               R"(}, "different_groups": {"r": {"params": {"dense_ratio": 0.5}}}}})";
    };
    const std::string best = R"("save": {"best": "eval_loss", "interval": 2})";
    const std::string patience = R"("patience": 2)";
    const std::string falls = weights("", R"("start_bits": 8, "target_bits": 4)");
    const std::string stays = weights("", R"("start_bits": 4, "target_bits": 4)");
    for (const std::string& section : {falls, masked(5)}) {
        INFO(section);
        CHECK_THAT(found(section, best), Catch::Contains("combined with dslaunch.save.best"));
        CHECK_THAT(found(section, patience), Catch::Contains("combined with dslaunch.patience"));
    }
    for (const std::string& section : {stays, masked(0)})
        for (const std::string& own : {best, patience})
            CHECK_THAT(found(section, own), !Catch::Contains("cannot be combined"));
}

TEST_CASE("a run that ends before a method begins, or before the target bits, is warned") {
    const auto warnings = [](const std::string& section, int steps) {
        return join(
            resolved(section, R"(, "dslaunch": {"steps": )" + std::to_string(steps) + "}").warnings,
            "\n");
    };
    const std::string masks =
        R"({"row_pruning": {"shared_parameters": {"enabled": true},
            "different_groups": {"r": {"params": {"dense_ratio": 0.5}}}}})";
    CHECK_THAT(warnings(masks, 500), Catch::Contains("schedule_offset is 1000, but the run has "
                                                     "500 steps: the method never begins"));
    CHECK_THAT(warnings(masks, 1001), !Catch::Contains("never begins"));
    // Roundings 3, 6, 12 and 24 take a bit; the first update has the first rounding.
    const std::string falls =
        weights("", R"("start_bits": 8, "target_bits": 4, "quantization_period": 3)");
    CHECK_THAT(warnings(falls, 23),
               Catch::Contains("the number of bits falls to 4 after 23 updates"));
    CHECK_THAT(warnings(falls, 24), !Catch::Contains("is not reached"));
}

TEST_CASE("keys that quantize_weight_in_forward makes useless are noted") {
    const std::string shared =
        R"(, "quantize_weight_in_forward": true, "rounding": "stochastic",
            "quantizer_kernel": true)";
    const Resolved found = resolved(
        weights(shared, R"("start_bits": 6, "target_bits": 1, "quantization_period": 50)"));
    CHECK(found.problems.empty());
    const std::string notes = join(found.notes, "\n");
    for (const char* key :
         {"rounding", "params.start_bits", "quantization_period", "quantizer_kernel"}) {
        INFO(key);
        CHECK_THAT(notes, Catch::Contains(std::string(key) + " has no effect"));
    }
}

TEST_CASE("layer_reduction has a teacher or keeps own layers, and distill says how one teaches") {
    const std::string layers =
        R"({"layer_reduction": {"enabled": true, "keep_number_layer": 2,
            "module_name_prefix": "layers", "teacher_layer": [1, 4],
            "other_module_name": ["head"]}})";
    const std::string teacher = R"(, "dslaunch": {"distill": {"teacher": "big.pt"}})";
    const Resolved found = resolved(layers, teacher);
    CHECK(found.problems.empty());
    const CompressionConfig& config = found.config.compression;
    CHECK(config.reduction == LayerReduction{true, "layers", {1, 4}, {"head"}});
    CHECK(config.distill == DistillConfig{"big.pt", DistillKind::kLogits, 1, 0.5});
    // A Hugging Face folder may keep some of its own layers; then there is no teacher.
    const Resolved own = resolved(layers);
    CHECK(own.problems.empty());
    CHECK(own.config.compression.reduction.teacher_layers == std::vector<int64_t>{1, 4});
    CHECK_FALSE(own.config.compression.distill.teaches());
    CHECK(std::ranges::any_of(own.notes, [](const std::string& note) {
        return note.find("keeps only 2 layers of its own") != std::string::npos;
    }));
    const Resolved no_layers =
        resolved(R"({"layer_reduction": {"enabled": true, "other_module_name": ["head"]}})");
    REQUIRE(no_layers.problems.size() == 1);
    CHECK_THAT(no_layers.problems.front().text(),
               Catch::Contains("teacher_layer: is missing: without dslaunch.distill.teacher"));
    const std::string only_kind = R"(, "dslaunch": {"distill": {"kind": "hidden"}})";
    CHECK_THAT(problems("{}", only_kind), Catch::Contains("distill.teacher: is missing"));
    for (const auto& [section, message] : std::vector<std::pair<std::string, std::string>>{
             {R"({"layer_reduction": {"enabled": true, "keep_number_layer": 3,
                  "module_name_prefix": "layers", "teacher_layer": [1, 4]}})",
              "keep_number_layer: is 3, but teacher_layer names 2 layers"},
             {R"({"layer_reduction": {"enabled": true, "teacher_layer": [1, 4]}})",
              "module_name_prefix: is missing"},
             {R"({"layer_reduction": {"enabled": true, "module_name_prefix": "a",
                  "teacher_layer": [1, -4]}})",
              "must be a list of numbers of layers"},
             {R"({"layer_reduction": {"enabled": true, "module_name_prefix": "a"}})",
              "nothing is copied from the teacher"}})
        CHECK_THAT(problems(section, teacher), Catch::Contains(message));
    for (const char* weight : {"0", "0.5"})
        CHECK_THAT(problems(layers, R"(, "dslaunch": {"lora": {"r": 2}, "distill":
                                        {"teacher": "big.pt", "weight": )" +
                                        std::string(weight) + "}}"),
                   Catch::Contains("compression_training.layer_reduction: cannot be combined "
                                   "with dslaunch.lora"));
    CHECK_THAT(join(resolved("{}", R"(, "dslaunch": {"distill": {"teacher": "big.pt",
                                             "weight": 0}})")
                        .warnings,
                    "\n"),
               Catch::Contains("so the teacher has no effect"));
    CHECK_THAT(problems("{}", R"(, "dslaunch": {"distill": {"teacher": "big.pt"},
                                 "loss": {"name": "dpo"}})"),
               Catch::Contains("dslaunch.distill: cannot be combined with a preference loss"));
}

}  // namespace dslaunch::compression_config_tests
