#include "base/text/wire.h"

#include "base/error.h"
#include "base/text/json.h"
#include "support/catch.h"

namespace dslaunch {

TEST_CASE("what is written on the wire is read back byte for byte") {
    const std::string any("a\0\n\xff'$(x)", 9);
    WireWriter writer;
    writer.u8(7).u32(1U << 31).i64(-5).string(any).string("");
    WireReader reader(writer.bytes(), "test frame");
    CHECK(reader.u8() == 7);
    CHECK(reader.u32() == 1U << 31);
    CHECK(reader.i64() == -5);
    CHECK(reader.string() == any);
    CHECK(reader.string().empty());
    CHECK(reader.done());
}

TEST_CASE("every prefix of a frame is an error and never a crash") {
    WireWriter writer;
    writer.u32(3).string("hello").u64(9);
    for (size_t length = 0; length < writer.bytes().size(); ++length) {
        WireReader reader(std::string_view(writer.bytes()).substr(0, length), "cut frame");
        CHECK_THROWS_AS((static_cast<void>(reader.u32()), static_cast<void>(reader.string()),
                         static_cast<void>(reader.u64())),
                        Error);
    }
}

TEST_CASE("JSON output escapes, nests and keeps doubles exact") {
    JsonWriter json;
    json.begin_object()
        .field("a\"b", "x\n\x01")
        .key("list")
        .begin_array()
        .value(1)
        .value(true)
        .null();
    json.value(0.1).end_array().field("bad", "\xff").end_object();
    CHECK(json.text() ==
          "{\"a\\\"b\": \"x\\n\\u0001\", \"list\": [1, true, null, 0.1], \"bad\": \"\\ufffd\"}");
}

}  // namespace dslaunch
