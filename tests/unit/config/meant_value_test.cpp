// Values of --set in a wrong spelling or at a wrong place: the message names a setting, and this
// setting is right.
#include "config/schema/meant_value.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/read/train_config.h"
#include "config/resolve/resolve.h"
#include "support/catch.h"
#include "unit/config/resolved.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

// Returns all problems of a config that has the SETTINGS of --set alone, in one text.
std::string problems_of(const std::vector<std::string>& settings) {
    TrainConfig config = empty_config();
    for (const std::string& setting : settings) apply_override(config, setting);
    return test::texts_of(resolve(config, {}).problems);
}

// Returns the settings after each `--set` in MESSAGE.
std::vector<std::string> settings_in(const std::string& message) {
    constexpr std::string_view kSet = "--set ";
    std::vector<std::string> settings;
    for (size_t at = message.find(kSet); at != std::string::npos; at = message.find(kSet, at + 1)) {
        const size_t begin = at + kSet.size();
        settings.push_back(message.substr(begin, message.find_first_of(" )\n", begin) - begin));
    }
    return settings;
}

}  // namespace

TEST_CASE("a wrong --set is answered with a setting that is right") {
    for (const auto& [typed, here] : std::vector<std::pair<std::string, std::string>>{
             {"optimizer=AdamW", "--set optimizer.type=AdamW"},
             {"optimizer=adamw", "--set optimizer.type=AdamW"},
             {"scheduler=cosine", "--set scheduler.type=Cosine"},
             {"zero_optimization=3", "--set zero_optimization.stage=3"},
             {"stage=3", "(--set zero_optimization.stage=3)"},
             {"bf16=true", "--set bf16.enabled=true"},
             {"fp16=on", "--set fp16.enabled=true"},
             {"fp16=None", "--set fp16.enabled=false"},
             {"wall_clock_breakdown=on", "--set wall_clock_breakdown=true"},
             {"zero_optimization.offload_optimizer=cpu",
              "--set zero_optimization.offload_optimizer.device=cpu"},
             {"zero_optimization.offload_param=true",
              "--set zero_optimization.offload_param.device=cpu"},
             {"dslaunch.lora=16", "--set dslaunch.lora.r=16"},
             {"dslaunch.lora=r=16", "--set dslaunch.lora.r=16"},
             {"lora.r=16", "(--set dslaunch.lora.r=16)"},
             {"dslaunch.data=rows.safetensors", "--set dslaunch.data.train=rows.safetensors"},
             {"dslaunch.save=100", "--set dslaunch.save.interval=100"},
             {"optimizer.params=0.1", "--set optimizer.params.lr=0.1"},
             {"steps=10", "(--set dslaunch.steps=10)"},
             {"steps=10k", "(--set dslaunch.steps=10000)"},
             {"device=cpu", "(--set dslaunch.device=cpu)"},
             {"train_batch_size=4k", "--set train_batch_size=4000"},
             {"train_batch_size=1_000", "--set train_batch_size=1000"},
             {"train_batch_size=1,000", "--set train_batch_size=1000"},
             {"train_batch_size=\"4\"", "--set train_batch_size=4"},
             {"train_batch_size==4", "--set train_batch_size=4"},
             {"train_batch_size=None", "--set train_batch_size=null"},
             {"optimizer.params.lr=1,5", "--set optimizer.params.lr=1.5"},
             {"gradient_clipping=10%", "--set gradient_clipping=0.1"},
             {"optimizer.params.betas=(0.9,0.95)", "--set optimizer.params.betas=[0.9,0.95]"},
             {"optimizer.params.betas=0.9,0.95", "--set optimizer.params.betas=[0.9,0.95]"},
             {"zero_optimization.stage=2,bf16.enabled=true",
              "--set zero_optimization.stage=2 --set bf16.enabled=true"}}) {
        CAPTURE(typed);
        const std::string message = problems_of({typed});
        CHECK_THAT(message, Catch::Contains(here));
        // The setting itself has no wrong type and no unknown key.
        const std::string after = problems_of(settings_in(message));
        CHECK(after.find("unknown key") == std::string::npos);
        CHECK(after.find(", not ") == std::string::npos);
    }
}

TEST_CASE("a wrong value that means nothing is answered without a guess") {
    for (const char* typed :
         {"train_batch_size=many", "train_batch_size=4.5", "optimizer.params.lr=1e-4x",
          "optimizer.params.betas=high", "dslaunch.save.interval=10m", "zero_optimization=fast",
          "dslaunch.save=often"}) {
        CAPTURE(typed);
        const std::string message = problems_of({typed});
        CHECK_THAT(message, Catch::Contains("must be "));
        CHECK(settings_in(message).empty());
    }
}

TEST_CASE("the same values in a file are answered in JSON") {
    const auto problem = [](const char* text) {
        return resolve(parse_config(text, "c.json"), {}).problems.at(0).text();
    };
    CHECK_THAT(problem(R"({"optimizer": "AdamW"})"), Catch::Contains(R"({"type": "AdamW"})"));
    CHECK_THAT(problem(R"({"train_batch_size": "4k"})"), Catch::EndsWith(": write 4000"));
    CHECK_THAT(problem(R"({"wall_clock_breakdown": "on"})"), Catch::EndsWith(": write true"));
    CHECK_THAT(problem(R"({"device": "cpu"})"), !Catch::Contains("--set"));
}

TEST_CASE("a --set without a value is refused, and null is the default") {
    TrainConfig config = empty_config();
    CHECK_THROWS_WITH(
        apply_override(config, "train_batch_size="),
        Catch::Contains("the value is missing") && Catch::Contains("train_batch_size=null"));
    CHECK(problems_of({"train_batch_size=null"}).empty());
    CHECK_THAT(problems_of({"optimizer={type:AdamW}"}),
               Catch::Contains("a blank is missing after the colon: type: AdamW"));
}

TEST_CASE("advice on another value of a key names the option that gave the value") {
    const auto advice = [](const char* origin) {
        TrainConfig config = parse_config("{}", "c");
        if (*origin != 0) apply_override(config, "bf16.enabled=true", origin);
        return other_value_text(resolve(config, {.world_size = 1}), "bf16.enabled", "false");
    };
    CHECK(advice("--bf16") == "leaving --bf16 out");
    CHECK(advice("--set") == "--set bf16.enabled=false in place of the given value");
    CHECK(advice("c:1") == "--set bf16.enabled=false");
    CHECK(advice("") == "--set bf16.enabled=false");
}

TEST_CASE("an option against a type in a file names the file and the way out") {
    TrainConfig config = parse_config(R"({"fp16": {"enabled": true}})", "c.json");
    apply_override(config, "bf16.enabled=true", "--bf16");
    const std::vector<Problem> problems = resolve(config, {}).problems;
    REQUIRE(problems.size() == 1);
    CHECK_THAT(problems.front().text(),
               Catch::Contains("(c.json:1:22): for bf16, add --set fp16.enabled=false"));
    apply_override(config, "fp16.enabled=false");
    CHECK(resolve(config, {}).problems.empty());
}
