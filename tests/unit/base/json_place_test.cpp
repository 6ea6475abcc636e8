#include "base/text/json_place.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::test;

TEST_CASE("only JSON that is cut short is said to end in the middle") {
    const auto said = [](std::string_view text) {
        return error_of(ExitCode::kInput,
                        [&] { static_cast<void>(JsonPlace::parse("config.json", text)); });
    };
    for (const char* text : {R"({"a": 1)", R"({"a": )", "[1,", R"({"a": "b)"}) {
        INFO(text);
        CHECK(mentions(said(text), "it ends in the middle"));
    }
    // A wrong last character.
    for (const char* text : {R"({"a": 1,})", R"({"a": 1}})", "[1,]"}) {
        INFO(text);
        CHECK(mentions(said(text), "is not valid JSON"));
        CHECK_FALSE(mentions(said(text), "in the middle"));
    }
}
