// --lora as overrides of the config.
#include "config/resolve/option_overrides.h"

#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using config::lora_overrides;

TEST_CASE("--lora sets keys one by one, and lists go on without a key") {
    CHECK(lora_overrides("r=16,targets=*.q_proj,*.v_proj,alpha=32,modules_to_save=lm_head") ==
          std::vector<std::string>{
              "dslaunch.lora.r=16", R"(dslaunch.lora.targets=["*.q_proj", "*.v_proj"])",
              "dslaunch.lora.alpha=32", R"(dslaunch.lora.modules_to_save=["lm_head"])"});
    CHECK(lora_overrides("rank=16,lora_alpha=32,target_modules=q_proj,v_proj,lora_dropout=0.1") ==
          std::vector<std::string>{"dslaunch.lora.r=16", "dslaunch.lora.alpha=32",
                                   R"(dslaunch.lora.targets=["q_proj", "v_proj"])",
                                   "dslaunch.lora.dropout=0.1"});
    CHECK(lora_overrides("r = 8, alpha = 16 , targets = *.q_proj, *.v_proj") ==
          std::vector<std::string>{"dslaunch.lora.r=8", "dslaunch.lora.alpha=16",
                                   R"(dslaunch.lora.targets=["*.q_proj", "*.v_proj"])"});
    for (const char* bad : {"", "r", "16,r=2", "r=16,q_proj", "=3", "r=1,,alpha=2"})
        CHECK_THAT(
            test::error_of(ExitCode::kUsage, [&] { static_cast<void>(lora_overrides(bad)); }),
            Catch::Contains("is not KEY=VALUE"));
    for (const char* bad : {"r=8,targets=[q_proj,v_proj]", "targets=q_proj v_proj,r=8",
                            "r=8,target_modules=['q_proj','v_proj']", "targets=(q_proj, v_proj)"})
        CHECK_THAT(
            test::error_of(ExitCode::kUsage, [&] { static_cast<void>(lora_overrides(bad)); }),
            Catch::Contains("without brackets, quotes or blanks: targets=q_proj,v_proj"));
    const auto refused = [](const char* text) {
        return test::error_of(ExitCode::kUsage, [&] { static_cast<void>(lora_overrides(text)); });
    };
    for (const char* without : {"r=4,bias=all", "r=4,use_dora=true", "r=4,use_dora=True"})
        CHECK_THAT(refused(without), Catch::Contains("bias and DoRA are not supported"));
    CHECK(lora_overrides("r=4,bias=none,use_dora=False") ==
          std::vector<std::string>{"dslaunch.lora.r=4"});
    CHECK(lora_overrides("bias=none") == std::vector<std::string>{"dslaunch.lora={}"});
    CHECK_THAT(refused("\u201cr=8,alpha=16\u201d"),
               Catch::Contains("is a typographic quote, probably copied"));
    CHECK_THAT(refused("r=4,rank=8"), Catch::Contains("is given twice"));
    CHECK_THAT(refused("run/adapter"),
               Catch::Contains("to start from this adapter, write init=run/adapter"));
}

}  // namespace dslaunch
