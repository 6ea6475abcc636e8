// HJSON as DeepSpeed reads it in its config: values, places, and mistakes that must not be read as
// text.
#include <string>

#include "config/read/train_config.h"
#include "support/catch.h"
#include "unit/config/resolved.h"

using namespace dslaunch::config;
using dslaunch::test::texts_of;

namespace {

struct Read {
    const char* text;
    const char* json;  // what Python's hjson 3.1.0 reads, printed by its json
};

// clang-format off
const Read kRead[] = {
    {"{}", "{}"},
    {"{\"a\": 1}", "{\"a\": 1}"},
    {"{\"a\": 1, \"b\": [1, 2.5, -3e-4, 1E+2]}", "{\"a\": 1, \"b\": [1, 2.5, -0.0003, 100]}"},
    {"{\"a\": {\"b\": {\"c\": null}}}", "{\"a\": {\"b\": {\"c\": null}}}"},
    {"{a: 1}", "{\"a\": 1}"},
    {"a: 1", "{\"a\": 1}"},
    {"a: 1\nb: 2", "{\"a\": 1, \"b\": 2}"},
    {"a: 1, b: 2", "{\"a\": 1, \"b\": 2}"},
    {"{a: 1, b: 2}", "{\"a\": 1, \"b\": 2}"},
    {"{\n  a: 1\n  b: 2\n}", "{\"a\": 1, \"b\": 2}"},
    {"a:1", "{\"a\": 1}"},
    {"{a: true, b: false, c: null}", "{\"a\": true, \"b\": false, \"c\": null}"},
    {"{a: true\nb: false\nc: null}", "{\"a\": true, \"b\": false, \"c\": null}"},
    {"a: truely", "{\"a\": \"truely\"}"},
    {"a: nullable\nb: falsehood", "{\"a\": \"nullable\", \"b\": \"falsehood\"}"},
    {"a: 1e9", "{\"a\": 1000000000}"},
    {"a: 1e-5", "{\"a\": 1e-05}"},
    {"a: -0", "{\"a\": 0}"},
    {"a: -0.5", "{\"a\": -0.5}"},
    {"a: 01", "{\"a\": \"01\"}"},
    {"a: +1", "{\"a\": \"+1\"}"},
    {"a: .5", "{\"a\": \".5\"}"},
    {"a: 1.", "{\"a\": \"1.\"}"},
    {"a: 0x10", "{\"a\": \"0x10\"}"},
    {"a: 1_000", "{\"a\": \"1_000\"}"},
    {"a: - 1", "{\"a\": \"- 1\"}"},
    {"a: 1e", "{\"a\": \"1e\"}"},
    {"a: 1 2", "{\"a\": \"1 2\"}"},
    {"a: 12345678901234567890", "{\"a\": 12345678901234567890}"},
    {"a: 9223372036854775807", "{\"a\": 9223372036854775807}"},
    {"a: NaN", "{\"a\": \"NaN\"}"},
    {"a: Infinity", "{\"a\": \"Infinity\"}"},
    {"a: auto", "{\"a\": \"auto\"}"},
    {"a: auto\n", "{\"a\": \"auto\"}"},
    {"a: two words here", "{\"a\": \"two words here\"}"},
    {"a:   blanks around   \nb: 1", "{\"a\": \"blanks around\", \"b\": 1}"},
    {"a: with, comma inside", "{\"a\": \"with, comma inside\"}"},
    {"a: 5 # five", "{\"a\": 5}"},
    {"a: 5 // five", "{\"a\": 5}"},
    {"a: 5 /* five */", "{\"a\": 5}"},
    {"a: 5/* five */, b: 6", "{\"a\": 5, \"b\": 6}"},
    {"a: text # no comment", "{\"a\": \"text # no comment\"}"},
    {"a: text // no comment", "{\"a\": \"text // no comment\"}"},
    {"a: text /* none */", "{\"a\": \"text /* none */\"}"},
    {"a: /local_nvme", "{\"a\": \"/local_nvme\"}"},
    {"a: /a//b", "{\"a\": \"/a//b\"}"},
    {"a: s3://bucket/x", "{\"a\": \"s3://bucket/x\"}"},
    {"a: 2/3", "{\"a\": \"2/3\"}"},
    {"a: 2#3", "{\"a\": 2}"},
    {"a: true#x", "{\"a\": true}"},
    {"a: C:\\data\\new", "{\"a\": \"C:\\\\data\\\\new\"}"},
    {"a: don't", "{\"a\": \"don't\"}"},
    {"a: see [1] and {2}", "{\"a\": \"see [1] and {2}\"}"},
    {"a: say \"yes\" twice \"no\"", "{\"a\": \"say \\\"yes\\\" twice \\\"no\\\"\"}"},
    {"a: -", "{\"a\": \"-\"}"},
    {"a: !@$%^&*()", "{\"a\": \"!@$%^&*()\"}"},
    {"a: größer als 5 µm", "{\"a\": \"größer als 5 µm\"}"},
    {"{\"a\": \"x\"}", "{\"a\": \"x\"}"},
    {"{'a': 'x'}", "{\"a\": \"x\"}"},
    {"a: 'it\\'s'", "{\"a\": \"it's\"}"},
    {"a: \"it's\"", "{\"a\": \"it's\"}"},
    {"a: 'say \"x\"'", "{\"a\": \"say \\\"x\\\"\"}"},
    {"\"a b\": 1", "{\"a b\": 1}"},
    {"'a b': 1", "{\"a b\": 1}"},
    {"\"\": 1", "{\"\": 1}"},
    {"a-b.c/d#e: 1", "{\"a-b.c/d#e\": 1}"},
    {"ключ: значение", "{\"ключ\": \"значение\"}"},
    {"a : 1", "{\"a\": 1}"},
    {"a\n: 1", "{\"a\": 1}"},
    {"a:\n  1", "{\"a\": 1}"},
    {"a:\n\n  text below", "{\"a\": \"text below\"}"},
    {"a: # why\n  1", "{\"a\": 1}"},
    {"\"a\" /* k */ : /* v */ 1", "{\"a\": 1}"},
    {"{\"a\": \"\\u00e9\\ud83d\\ude00\\n\\t\\/\\\\\\\"\\b\\f\\r\"}", "{\"a\": \"é😀\\n\\t/\\\\\\\"\\b\\f\\r\"}"},
    {"{\"a\": \"\\u0041\"}", "{\"a\": \"A\"}"},
    {"{\"a\": 1,}", "{\"a\": 1}"},
    {"{\"a\": [1, 2,],}", "{\"a\": [1, 2]}"},
    {"{\"a\": []}", "{\"a\": []}"},
    {"{\"a\": [ ]}", "{\"a\": []}"},
    {"{\"a\": { }}", "{\"a\": {}}"},
    {"{\"a\": [\n 1\n 2\n 3\n]}", "{\"a\": [1, 2, 3]}"},
    {"{\"a\": [\n one\n two words\n 3\n]}", "{\"a\": [\"one\", \"two words\", 3]}"},
    {"{\"a\": [\"x\" \"y\"]}", "{\"a\": [\"x\", \"y\"]}"},
    {"{\"a\": \"x\" \"b\": 1}", "{\"a\": \"x\", \"b\": 1}"},
    {"{\"a\": [1] \"b\": {} \"c\": 3}", "{\"a\": [1], \"b\": {}, \"c\": 3}"},
    {"{\"a\": [[1] [2]]}", "{\"a\": [[1], [2]]}"},
    {"a: [\n  {b: 1}\n  {b: 2}\n]", "{\"a\": [{\"b\": 1}, {\"b\": 2}]}"},
    {"# head\n{ // root\n  a: 1 /* in\n  the middle */ b: 2 # end\n}\n// tail", "{\"a\": 1, \"b\": 2}"},
    {"/**/a: 1", "{\"a\": 1}"},
    {"#\na: 1\n#", "{\"a\": 1}"},
    {"\na: '''one line'''", "{\"a\": \"one line\"}"},
    {"a: '''\n   first\n   second\n   '''", "{\"a\": \"first\\nsecond\"}"},
    {"{\n  a:\n    '''\n    first\n      second\n\n    third\n    '''\n  b: 1\n}", "{\"a\": \"first\\n  second\\n\\nthird\", \"b\": 1}"},
    {"\na: '''  lead''' b: 2", "{\"a\": \"lead\", \"b\": 2}"},
    {"\na: ''''quoted'' '''", "{\"a\": \"'quoted'' \"}"},
    {"\na: ''''''", "{\"a\": \"\"}"},
    {"a: '''x\n'''\nb: '''\n'''", "{\"a\": \"x\", \"b\": \"\"}"},
    {"\n  a: '''x\n  y\n    z'''", "{\"a\": \"x\\ny\\nz\"}"},
    {"{\r\n  \"a\": 1,\r\n  b: text\r\n}\r\n", "{\"a\": 1, \"b\": \"text\"}"},
    {"a: 1\r\nb: x y\r\n", "{\"a\": 1, \"b\": \"x y\"}"},
    {"\ufeff{\"a\": 1}", "{\"a\": 1}"},
    {"\ufeffa: 1", "{\"a\": 1}"},
    {"\t{\t\"a\"\t:\t1\t}\t", "{\"a\": 1}"},
    {"{a: 1}  ", "{\"a\": 1}"},
    {"a: 1,", "{\"a\": 1}"},
    {"a: 1,\n", "{\"a\": 1}"},
    {"a: x\n\n\nb: y", "{\"a\": \"x\", \"b\": \"y\"}"},
    {"a: {b: 1, c: {d: 2}}", "{\"a\": {\"b\": 1, \"c\": {\"d\": 2}}}"},
    {"a: {\n b: x\n}", "{\"a\": {\"b\": \"x\"}}"},
    {"a: [1, 2, 3] // c", "{\"a\": [1, 2, 3]}"},
    {"a: \"x\" # c", "{\"a\": \"x\"}"},
    {"a: 0.1, b: 0.30000000000000004", "{\"a\": 0.1, \"b\": 0.30000000000000004}"},
    {"a: 1.7976931348623157e308", "{\"a\": 1.7976931348623157e+308}"},
    {"a: 5e-324", "{\"a\": 5e-324}"},
    {"a: 100000000000000000000.5", "{\"a\": 1e+20}"},
};
// clang-format on

}  // namespace

TEST_CASE("HJSON is read as Python's hjson reads it") {
    for (const Read& row : kRead) {
        INFO(row.text);
        for (const char* name : {"ds.json", "a/ds.hjson"}) {
            const TrainConfig read = parse_config(row.text, name);
            const TrainConfig expected = parse_config(row.json, "expected.yaml");
            CHECK(texts_of(read.problems) + texts_of(expected.problems) == "");
            CHECK(to_json(read.root) == to_json(expected.root));
            CHECK(same_value(read.root, expected.root));
        }
    }
}

TEST_CASE("each value of HJSON has its place and its type") {
    const TrainConfig config = parse_config(
        "# the whole job\n"
        "{\n"
        "  train_batch_size: 8  // rows\n"
        "  optimizer: {type: \"AdamW\" /* of DeepSpeed */, params: {lr: 1e-4, bias_correction: "
        "true}}\n"
        "  dslaunch:\n"
        "    {\n"
        "      data: { \"train\": '/d a/x', eval: null }\n"
        "      note: text, all of it # too\n"
        "    }\n"
        "}\n",
        "ds.json");
    REQUIRE(texts_of(config.problems) == "");
    struct Row {
        const char* path;
        Value value;
        const char* origin;
    };
    const Row rows[] = {
        {"train_batch_size", make_value(int64_t{8}), "ds.json:3:21"},
        {"optimizer.type", make_value(std::string("AdamW")), "ds.json:4:21"},
        {"optimizer.params.lr", make_value(1e-4), "ds.json:4:62"},
        {"optimizer.params.bias_correction", make_value(true), "ds.json:4:85"},
        {"dslaunch.data.train", make_value(std::string("/d a/x")), "ds.json:7:24"},
        {"dslaunch.data.eval", Value{}, "ds.json:7:40"},
        {"dslaunch.note", make_value(std::string("text, all of it # too")), "ds.json:8:13"},
    };
    for (const Row& row : rows) {
        INFO(row.path);
        const Value* found = find_path(config.root, row.path);
        REQUIRE(found != nullptr);
        CHECK(found->kind == row.value.kind);
        CHECK(same_value(*found, row.value));
        CHECK(found->origin == row.origin);
    }
    CHECK(find_path(config.root, "dslaunch")->origin == "ds.json:6:5");
}

namespace {

struct Wrong {
    const char* text;
    const char* problem;  // after "ds.json:"
};

void check_wrong(const Wrong& row) {
    INFO(row.text);
    const TrainConfig config = parse_config(row.text, "ds.json");
    CHECK(texts_of(config.problems) == std::string("ds.json:") + row.problem + "\n");
}

}  // namespace

TEST_CASE("what is no HJSON is refused by place") {
    for (const Wrong& row : std::initializer_list<Wrong>{
             {"", " is empty: write {} for a config of defaults"},
             {"# nothing\n", " is empty: write {} for a config of defaults"},
             {"[]", " must be an object {\"key\": value, …}, not a list"},
             {"3", " must be an object {\"key\": value, …}, not 3"},
             {"\"x\" // y", " must be an object {\"key\": value, …}, not the string \"x\""},
             {"{", "1:1: not valid JSON: the `{` is never closed"},
             {"{\"a\": [1", "1:7: not valid JSON: the `[` is never closed"},
             {"{\"a\": 1}}",
              "1:9: not valid JSON: `}` closes no `{`: more text after the end of the "
              "config"},
             {"a: 1\n}",
              "2:1: not valid JSON: `}` closes no `{`: found `}` where a key is expected"},
             {"{\"a\": 1} b", "1:10: not valid JSON: more text after the end of the config"},
             {"{\"a\": [1}",
              "1:9: not valid JSON: found `}` before the `]` that closes the `[` of line 1, column "
              "7"},
             {"{\n\"a\": {\"b\": 1]}",
              "2:13: not valid JSON: found `]` before the `}` that closes the `{` of line 2, "
              "column 6"},
             {"{,}", "1:2: not valid JSON: found `,` where a key is expected"},
             {"{\"a\": 1,,}", "1:9: not valid JSON: found `,` where a key is expected"},
             {"{\"a\": [1,,2]}", "1:10: not valid JSON: found `,` where a value is expected"},
             {"{\"a\": }", "1:7: not valid JSON: found `}` where the value of `a` is expected"},
             {"a:", "1:2: not valid JSON: the value of `a` is missing"},
             {"a", "1:2: not valid JSON: a `:` is missing after the key `a`"},
             {"{\"a\" 1}", "1:6: not valid JSON: a `:` is missing after the key `a`"},
             {"{a b: 1}", "1:4: not valid JSON: a `:` is missing after the key `a`"},
             {"{: 1}",
              "1:2: not valid JSON: found `:` where a key is expected: is the value before it "
              "missing?"},
             {"{\"a\": 1, /* }", "1:10: not valid JSON: the comment that begins here has no `*/`"},
             {"a: '''x", "1:4: not valid JSON: the text that begins here has no closing '''"},
             {"a: \"\tx\"", "1:5: not valid JSON: a tab in a string: write \\t"},
             {"a: \"\x01\"", "1:5: not valid JSON: a control character in a string"},
             {"a: \"C:\\data\"",
              "1:7: not valid JSON: this is not an escape of JSON: write \\\\ for a backslash"},
             {"a: \"\\u12g4\"",
              "1:5: not valid JSON: four hexadecimal digits are expected after \\u"},
             {"a: \"\\ud83d\"",
              "1:5: not valid JSON: this \\u escape is only half of a character: characters beyond "
              "U+FFFF need two"},
             {"a: \"\\ude00\"",
              "1:5: not valid JSON: this \\u escape is only half of a character: characters beyond "
              "U+FFFF need two"},
             {"a: \"\xC3\"",
              "1:5: not valid JSON: a byte that is not UTF-8: save the file as UTF-8"},
             {"{a: 1, b: 2\na: 3}", "2:1: a: duplicate key, first given at ds.json:1:5"}})
        check_wrong(row);
    const std::string deep = std::string(32, '[') + "1";
    CHECK(texts_of(parse_config("{a:\n" + deep, "ds.json").problems) ==
          "ds.json:2:32: nested deeper than 32 levels\n");
}

TEST_CASE("mistakes in JSON are told where they are, also where HJSON takes them as text") {
    const std::string text_to_end =
        " is not a number or word of JSON, and as text without quotes it would include the rest of "
        "its line: put it in quotes";
    for (
        const auto& [text, problem] : std::initializer_list<std::pair<const char*, std::string>>{
            // A quote is missing.
            {"{\"a\": \"x,\n\"b\": 1}",
             "1:7: not valid JSON: the string that begins here has no "
             "closing quote on its line"},
            {"{\"a: 1,\n\"b\": 1}",
             "1:2: not valid JSON: the string that begins here has no "
             "closing quote on its line"},
            {"{\n\"type\": Adam\",\n\"lr\": 1}",
             "2:9: not valid JSON: a quote is missing before "
             "`Adam\",`"},
            {"{\"a\": NaN}", "1:7: not valid JSON: JSON has no NaN: write a number"},
            {"{\"a\": -Infinity,\n\"b\": 1}",
             "1:7: not valid JSON: JSON has no -Infinity: write a number"},
            {"{\"type\": Adam\"}", "1:10: not valid JSON: a quote is missing before `Adam\"}`"},
            {"{\"type\": Adam', \"lr\": 1}",
             "1:10: not valid JSON: a quote is missing before `Adam', \"lr\": 1}`"},
            {"{\"type\": \"Adam, \"lr\": 1}",
             "1:18: not valid JSON: a quote is missing before "
             "`lr\"`, or in the text before it"},
            {"{\n  type\": \"Adam\"}",
             "2:3: not valid JSON: a quote is missing before `type\"`, or in the text before it"},
            {"{\"a\": [\"x, \"y\"]}", "1:13: not valid JSON: a quote is missing before `y\"]}`"},
            // A comma or a colon is missing.
            {"{\"stage\": 2 \"x\": 1}",
             "1:13: not valid JSON: a comma is missing before `\"x\": 1}`"},
            {"{\"on\": true 'x': 1\n}", "1:13: not valid JSON: a comma is missing before `'x': 1`"},
            {"{\"betas\": [0.9 0.999]}", "1:12: not valid JSON: `0.9 0.999]}`" + text_to_end},
            {"{\"a\": \"x\": 1}",
             "1:10: not valid JSON: found `:` where a key is expected: is the value before it "
             "missing?"},
            // A value is missing.
            {"{\"a\":\n\"b\": 1}",
             "2:4: not valid JSON: found `:` where a key is expected: is the value before it "
             "missing?"},
            {"zero_optimization:\n  stage: 2\n",
             "2:3: not valid JSON: `stage: 2` cannot be the value of the key above it: write a "
             "value after the key's `:`, and { } around a section"},
            // A bracket is missing.
            {"{\n  \"optimizer\": {\n    \"params\": {\n      \"lr\": 1\n  },\n  \"fp16\": {}\n}\n",
             "3:15: not valid JSON: the `{` is not closed: the `}` of line 5, column 3 probably "
             "belongs to another bracket"},
            // Words without quotes.
            {"{type: Adam, lr: 1}", "1:8: not valid JSON: `Adam, lr: 1}`" + text_to_end},
            {"type: Adam,\nlr: 1", "1:7: not valid JSON: `Adam,`" + text_to_end},
            {"{\"lr\": .5,\n}", "1:8: not valid JSON: `.5,`" + text_to_end},
            {"{\n  columns: [x, y]\n}", "2:13: not valid JSON: `x, y]`" + text_to_end},
            {"{\"on\": True,\n\"x\": 1}",
             "1:8: not valid JSON: `True` is not a word of JSON: write true"},
            {"{\"path\": None}", "1:10: not valid JSON: `None` is not a word of JSON: write null"},
            {"{on: FALSE\n}", "1:6: not valid JSON: `FALSE` is not a word of JSON: write false"},
            // Characters that word processors and web pages use.
            {"{“stage”: 2}", "1:2: not valid JSON: “ is not a quote of JSON: write \""},
            {"{type: “Adam”\n}", "1:8: not valid JSON: “ is not a quote of JSON: write \""},
            {"{\n\u00a0 \"stage\": 2}",
             "2:1: not valid JSON: the character U+00A0 only looks like a blank: write a blank"}})
        check_wrong({text, problem.c_str()});
}
