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
    config.rslora = true;
    config.transposed = true;
    config.targets = {"a.q_proj", "b.\"quoted\""};
    config.modules_to_save = {"head"};
    const AdapterConfig read = parse_adapter_config("a.json", adapter_config_json(config));
    CHECK(read.base_model == config.base_model);
    CHECK(read.r == 4);
    CHECK(read.alpha == 6.5);
    CHECK(read.dropout == 0.25);
    CHECK(read.rslora);
    CHECK(read.transposed);
    CHECK(read.targets == config.targets);
    CHECK(read.modules_to_save == config.modules_to_save);
    CHECK(read.scale() == 6.5 / 2);
    const auto json = nlohmann::json::parse(adapter_config_json({}));
    CHECK(json.at("modules_to_save").is_null());
    CHECK(json.at("peft_type") == "LORA");
}

TEST_CASE("fields that would change what an adapter computes are refused by name") {
    CHECK(parse_adapter_config("a", R"({"peft_type": "LORA"})").r == 8);
    CHECK(parse_adapter_config("a", R"({"peft_type": "LORA", "target_modules": "x"})").targets ==
          std::vector<std::string>{"x"});
    CHECK_THAT(refusal("[]"), Catch::Contains("is no JSON object"));
    CHECK_THAT(refusal("{"), Catch::Contains("is no JSON object"));
    CHECK_THAT(refusal(R"({"peft_type": "IA3"})"), Catch::Contains("`peft_type` is not LORA"));
    for (const char* field :
         {R"("use_dora": true)", R"("rank_pattern": {"x": 2})", R"("bias": "all")", R"("r": 0)",
          R"("r": 1.5)", R"("r": 1e300)", R"("lora_alpha": "2")", R"("target_modules": [1])"}) {
        INFO(field);
        const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
        CHECK_THAT(refusal(std::string(R"({"peft_type": "LORA", )") + field + "}"),
                   Catch::Contains("a.json: `" + name + "`"));
    }
}

TEST_CASE("names in an adapter's file are the model's behind PEFT's prefix") {
    CHECK(name_in_adapter("h.0.q.lora_A.weight") == "base_model.model.h.0.q.lora_A.weight");
    CHECK(name_in_model("base_model.model.h.0.q.lora_A.weight") == "h.0.q.lora_A.weight");
    CHECK(name_in_model("h.0.q.lora_A.weight").empty());
}

}  // namespace dslaunch
