// adapter_config.json as PEFT writes it, read and written.
#include "storage/adapter/adapter_config.h"

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace storage;

namespace {

std::string refusal(const std::string& text) {
    return test::error_of(ExitCode::kInput,
                          [&] { static_cast<void>(parse_adapter_config("a.json", text)); });
}

}  // namespace

TEST_CASE("an adapter's config is read as it was written") {
    AdapterConfig config;
    config.base_model = "base";
    config.r = 4;
    config.alpha = 6.5;
    config.dropout = 0.25;
    config.is_rslora = true;
    config.is_transposed = true;
    config.targets = {"a.q_proj", "b.\"quoted\""};
    config.modules_to_save = {"head"};
    const AdapterConfig read = parse_adapter_config("a.json", adapter_config_json(config));
    CHECK(read.base_model == config.base_model);
    CHECK(read.r == 4);
    CHECK(read.alpha == 6.5);
    CHECK(read.dropout == 0.25);
    CHECK(read.is_rslora);
    CHECK(read.is_transposed);
    CHECK(read.targets == config.targets);
    CHECK(read.modules_to_save == config.modules_to_save);
    CHECK(read.scale() == 6.5 / 2);
    const auto json = nlohmann::json::parse(adapter_config_json({}));
    CHECK(json.at("modules_to_save").is_null());
    CHECK(json.at("peft_type") == "LORA");
}

TEST_CASE("a config of experts is read as it was written") {
    AdapterConfig config;
    config.r = 4;
    config.alpha = 8;
    config.target_parameters = {"h.0.experts.gate_up_proj"};
    config.rank_pattern = {{"experts.gate_up_proj", 8}};
    config.alpha_pattern = {{"experts.gate_up_proj", 11.5}};
    const std::string text = adapter_config_json(config);
    // Null would mean the layers that PEFT knows for the architecture.
    CHECK(nlohmann::json::parse(text).at("target_modules").is_array());
    const AdapterConfig read = parse_adapter_config("a.json", text);
    CHECK(read.target_parameters == config.target_parameters);
    CHECK(read.rank_of("h.0.experts.gate_up_proj") == 8);
    CHECK(read.scale_of("h.0.experts.gate_up_proj") == 11.5 / 8);
    CHECK(read.scale_of("h.0.experts.down_proj") == 2);
    CHECK_FALSE(read.is_plain());
    CHECK(config.is_tied == read.is_tied);
}

TEST_CASE("fields that would change what an adapter computes are refused by name") {
    CHECK(parse_adapter_config("a", R"({"peft_type": "LORA"})").r == 8);
    CHECK(parse_adapter_config("a", R"({"peft_type": "LORA", "target_modules": "x"})").targets ==
          std::vector<std::string>{"x"});
    CHECK_THAT(refusal("[]"), Catch::Contains("is not a JSON object"));
    CHECK_THAT(refusal("{"), Catch::Contains("is not a JSON object"));
    CHECK_THAT(refusal("{}"), Catch::Contains("`peft_type` is missing"));
    CHECK_THAT(refusal(R"({"peft_type": "IA3"})"), Catch::Contains("`peft_type` is IA3, not LORA"));
    CHECK_THAT(refusal(R"({"fine_tune_type": "lora"})"), Catch::Contains("comes from MLX"));
    for (const char* field : {R"("alora_invocation_tokens": [5])",
                              R"("layer_replication": [[0, 2]])",
                              R"("megatron_config": {"x": 1})",
                              R"("use_qalora": true)",
                              R"("use_bdlora": {"nblocks": 2})",
                              R"("arrow_config": {"top_k": 3})",
                              R"("monteclora_config": {"num_samples": 8})",
                              R"("kasa_config": {"beta": 0.1})",
                              R"("enable_lora": [true, false])",
                              R"("init_lora_weights": "pissa_niter_4")",
                              R"("init_lora_weights": "corda")",
                              R"("init_lora_weights": "lora_ga")",
                              R"("init_lora_weights": "loftq")",
                              R"("task_type": "SEQ_CLS")",
                              R"("bias": "some")",
                              R"("of_next_release": true)",
                              R"("rank_pattern": {"x": 0})",
                              R"("rank_pattern": 2)",
                              R"("alpha_pattern": {"(": 2})",
                              R"("alpha_pattern": {"\\q": 2})",
                              R"("alpha_pattern": {"[]x]": 2})",
                              R"("alpha_pattern": {"[^]x]": 2})",
                              R"("alpha_pattern": {"[[:alpha:]]": 2})",
                              R"("alpha_pattern": {"x*+": 2})",
                              R"("alpha_pattern": {"(?<=x)q": 2})",
                              R"("alpha_pattern": {"x{,3}": 2})",
                              R"("alpha_pattern": {"x": "2"})",
                              R"("layers_to_transform": [-1])",
                              R"("layers_pattern": "(")",
                              R"("trainable_token_indices": ["x"])",
                              R"("r": 0)",
                              R"("r": 1.5)",
                              R"("r": 1e300)",
                              R"("lora_alpha": "2")",
                              R"("target_modules": [1])"}) {
        INFO(field);
        const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
        CHECK_THAT(refusal(std::string(R"({"peft_type": "LORA", )") + field + "}"),
                   Catch::Contains("a.json: `" + name + "`"));
    }
}

TEST_CASE("fields that change nothing a trained adapter computes are passed over") {
    for (const char* field : {R"("alora_invocation_tokens": null)",
                              R"("auto_mapping": {"unsloth_fixed": true})",
                              R"("revision": "main")",
                              R"("inference_mode": false)",
                              R"("megatron_core": "x.core")",
                              R"("loftq_config": {"loftq_bits": 4})",
                              R"("eva_config": {"rho": 2.0})",
                              R"("corda_config": {"verbose": true})",
                              R"("velora_config": {"num_groups": 64})",
                              R"("runtime_config": {"ephemeral_gpu_offload": true})",
                              R"("merge_weights": true)",
                              R"("init_lora_weights": "gaussian")",
                              R"("init_lora_weights": "eva")",
                              R"("init_lora_weights": "orthogonal")",
                              R"("init_lora_weights": "mica")",
                              R"("enable_lora": null)",
                              R"("qalora_group_size": 32)",
                              R"("of_next_release": 16)",
                              R"("of_next_release": {})",
                              R"("use_qalora": false)",
                              R"("peft_version": "9.0")"}) {
        INFO(field);
        CHECK(parse_adapter_config("a", std::string(R"({"peft_type": "LORA", )") + field + "}")
                  .is_plain());
    }
}

TEST_CASE("layers are named as PEFT names them") {
    const auto config = [](const std::string& fields) {
        return parse_adapter_config(
            "a", R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, )" + fields + "}");
    };
    struct Case {
        const char* fields;
        const char* path;
        bool may;
    };
    // Expected results follow check_target_module_exists() of peft/tuners/tuners_utils.py.
    const std::vector<Case> cases = {
        {R"("target_modules": ["q"])", "model.layers.0.q", true},
        {R"("target_modules": ["q"])", "q", true},
        {R"("target_modules": ["q"])", "model.layers.0.xq", false},
        {R"("target_modules": ["0.q"])", "model.layers.10.q", false},
        {R"("target_modules": "q")", "model.layers.0.q", false},
        {R"("target_modules": ".*\\.q")", "model.layers.0.q", true},
        {R"("target_modules": ".*\\.q")", "model.layers.0.q.x", false},
        {R"("target_modules": "all-linear")", "anything", true},
        {R"("target_modules": "ALL-Linear", "exclude_modules": ["q"])", "model.layers.0.q", false},
        {R"("target_modules": ["q"], "exclude_modules": ".*\\.1\\..*")", "a.layers.1.q", false},
        {R"("target_modules": ["q"], "layers_to_transform": 1)", "model.layers.1.q", true},
        {R"("target_modules": ["q"], "layers_to_transform": [1])", "model.layers.0.q", false},
        {R"("target_modules": ["q"], "layers_to_transform": [1])", "model.layers.1.e.0.q", true},
        {R"("target_modules": ["q"], "layers_to_transform": [1])", "layers.1.q", false},
        {R"("target_modules": ["a.h.0.q"], "layers_to_transform": [1])", "a.h.0.q", true},
        {R"("target_modules": ["q"], "layers_to_transform": [1], "layers_pattern": "h")", "h.1.q",
         true},
        {R"("target_modules": ["q"], "layers_to_transform": [1], "layers_pattern": ["x", "h"])",
         "e.0.h.1.q", true},
        {R"("target_modules": ["q"], "layers_to_transform": [1], "layers_pattern": "x")",
         "model.h.1.q", false},
    };
    for (const Case& one : cases) {
        INFO(one.fields << " " << one.path);
        CHECK(config(one.fields).target_names.may_have(one.path) == one.may);
    }
    // The first pattern that fits decides, as in get_pattern_key() of peft/utils/other.py.
    const AdapterConfig patterns =
        config(R"("rank_pattern": {"^model.layers.1.q": 2, "layers.1.q": 6, "q|k": 8},
                  "alpha_pattern": {"layers.[01].k": 3, "\\Aa\\.[.q]+\\Z": 7})");
    CHECK(patterns.rank_of("model.layers.1.q") == 2);
    CHECK(patterns.rank_of("a.model.layers.1.q") == 6);
    CHECK(patterns.rank_of("model.layers.0.k") == 8);
    CHECK(patterns.rank_of("model.layers.0.v") == 4);
    CHECK(patterns.rank_of("model.layers.0.xk") == 4);
    CHECK(patterns.scale_of("model.layers.0.k") == 3.0 / 8);
    CHECK(patterns.scale_of("model.layers.0.v") == 2);
    CHECK(patterns.scale_of("a.q") == 7.0 / 8);
    CHECK(patterns.scale_of("a.q.x") == 2);
    // A pattern for which other matchers take endless time.
    CHECK(config(R"("rank_pattern": {"(a+a+)+b": 2})").rank_of(std::string(300, 'a')) == 4);
}

}  // namespace dslaunch
