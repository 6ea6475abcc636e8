// The tensors of an adapter's file beside its config: what is whole, and what is refused by name.
#include "storage/adapter/adapter_tensors.h"

#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace storage;

namespace {

SafetensorsEntry tensor(const std::string& name, std::vector<int64_t> shape,
                        DType dtype = DType::kF32) {
    return {"base_model.model." + name, dtype, std::move(shape), {}};
}

std::string verdict(const std::vector<SafetensorsEntry>& entries,
                    const std::vector<std::string>& saved = {}) {
    AdapterConfig config;
    config.r = 4;
    config.modules_to_save = saved;
    return test::error_of(ExitCode::kInput,
                          [&] { check_adapter_tensors("a.safetensors", config, entries); });
}

}  // namespace

TEST_CASE("an adapter is whole with both halves of each layer, of the rank in its config") {
    const SafetensorsEntry a = tensor("x.q.lora_A.weight", {4, 8});
    const SafetensorsEntry b = tensor("x.q.lora_B.weight", {16, 4});
    CHECK(verdict({a, b}) == "accepted");
    CHECK(verdict({b, a, tensor("x.norm.weight", {8}, DType::kBF16)}, {"norm"}) == "accepted");

    struct Case {
        std::vector<SafetensorsEntry> entries;
        std::string says;
        std::vector<std::string> saved = {};
    };
    const std::vector<Case> cases = {
        {{a}, "`base_model.model.x.q.lora_A.weight` has no lora_B beside it"},
        {{b}, "`base_model.model.x.q.lora_B.weight` has no lora_A beside it"},
        {{a, tensor("x.k.lora_B.weight", {16, 4})}, "half of the adapter of `x.k` is missing"},
        {{tensor("x.q.lora_A.weight", {2, 8}), tensor("x.q.lora_B.weight", {16, 2})},
         "is of rank 2, and `r` of adapter_config.json is 4"},
        {{a, tensor("x.q.lora_B.weight", {16, 8})}, "is of rank 8"},
        {{tensor("x.q.lora_A.weight", {4}), b}, "has 1 dimensions, not 2"},
        {{tensor("x.q.lora_A.weight", {4, 8}, DType::kI32), b}, "has numbers of type"},
        {{a, b, {"lm_head.weight", DType::kF32, {8}, {}}}, "belongs to no adapter"},
        {{a, b}, "has nothing of modules_to_save of adapter_config.json (`norm`)", {"norm"}},
    };
    for (const Case& one : cases) {
        const std::string said = verdict(one.entries, one.saved);
        INFO(said);
        CHECK_THAT(said, Catch::Contains("a.safetensors: ") && Catch::Contains(one.says));
    }
}

}  // namespace dslaunch
