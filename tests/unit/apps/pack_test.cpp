#include "base/error.h"
#include "launcher/packed_config.h"
#include "support/catch.h"

namespace dslaunch {

TEST_CASE("a data reference goes into the config and everything else keeps its order") {
    CHECK(
        with_data(
            R"({"z": 1, "dslaunch": {"steps": 2, "data": {"train": "old", "context": 8}}, "a": 2})",
            "c", {.train = "new", .eval = "held"}) ==
        "{\n  \"z\": 1,\n  \"dslaunch\": {\n    \"steps\": 2,\n    \"data\": {\n      \"train\": "
        "\"new\",\n"
        "      \"context\": 8,\n      \"eval\": \"held\"\n    }\n  },\n  \"a\": 2\n}\n");
    CHECK(with_data("{}", "c", {}) == "{}\n");
    for (const char* bad :
         {"", "[1]", "{\"a\": 1, \"a\": 2}", "{\"dslaunch\": 3}", "{\"dslaunch\": {\"data\": []}}",
          "{\"x\": {\"a\": 1, \"a\": 2}}", "train: 1"}) {
        INFO(bad);
        try {
            (void)with_data(bad, "conf.json", {.train = "t"});
            FAIL("accepted");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kConfig);
            CHECK(std::string(error.what()).starts_with("conf.json"));
        }
    }
}

TEST_CASE("a packed data path is relative to the archive's folder") {
    CHECK(relative_to_archive("data/kjv.tokens", "train.pt") == "data/kjv.tokens");
    CHECK(relative_to_archive("data/kjv.tokens", "data/train.pt") == "kjv.tokens");
    CHECK(relative_to_archive("kjv.tokens", "out/train.pt") == "../kjv.tokens");
    CHECK(relative_to_archive("/data/kjv.tokens", "out/train.pt") == "/data/kjv.tokens");
}

}  // namespace dslaunch
