// Templates, compared with Jinja2: tests/fixtures/chat/make_chat.py wrote the results of
// transformers' own renderer.
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/text_tools.h"
#include "text/chat_template/chat_template.h"

using namespace dslaunch;
using namespace dslaunch::text;
using namespace dslaunch::test;

namespace {

using TemplateJinjaJson = nlohmann::ordered_json;

const TemplateJinjaJson& jinja_fixture() {
    static const TemplateJinjaJson json =
        TemplateJinjaJson::parse(content_of(fixture_path("chat/chat.json")));
    return json;
}

// Returns the clock of make_chat.py: Saturday, 7 March 2026, 09:05:03.
TemplateOptions fixture_clock() {
    TemplateOptions options;
    options.now.emplace();
    options.now->tm_year = 126;
    options.now->tm_mon = 2;
    options.now->tm_mday = 7;
    options.now->tm_hour = 9;
    options.now->tm_min = 5;
    options.now->tm_sec = 3;
    options.now->tm_wday = 6;
    options.now->tm_yday = 65;
    return options;
}

size_t points_before(const std::string& text, size_t bytes) {
    size_t points = 0;
    for (size_t i = 0; i < bytes; ++i)
        points += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 ? 1 : 0;
    return points;
}

// Returns the text, or null for an error. The error must name the template and a line.
TemplateJinjaJson outcome(const std::string& source, const TemplateJinjaJson& variables,
                          TemplateJinjaJson* generated = nullptr) {
    try {
        const RenderedChat chat =
            ChatTemplate::parse(source, "fixture").render(variables, fixture_clock());
        if (generated != nullptr) {
            *generated = TemplateJinjaJson::array();
            for (const TextRange& range : chat.generated)
                generated->push_back({points_before(chat.text, range.begin_bytes),
                                      points_before(chat.text, range.end_bytes)});
        }
        return chat.text;
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kInput);
        CHECK(std::string(error.what()).starts_with("fixture:"));
        return nullptr;
    }
}

}  // namespace

TEST_CASE("expressions and tags print what Jinja2 prints, and fail where it fails") {
    TemplateJinjaJson variables = jinja_fixture()["variables"];
    variables["messages"] = TemplateJinjaJson::array();
    variables["tools"] = variables["documents"] = nullptr;
    variables["add_generation_prompt"] = false;
    size_t rows = 0;
    for (const TemplateJinjaJson& row : jinja_fixture()["expressions"]) {
        INFO(row[0].get<std::string>());
        CHECK(outcome(row[0], variables) == row[1]);
        ++rows;
    }
    CHECK(rows > 100);
}

TEST_CASE("chat templates render as transformers renders them, with the assistant's marks") {
    size_t rows = 0;
    for (const TemplateJinjaJson& row : jinja_fixture()["chats"]) {
        INFO(row["template"].get<std::string>() << " " << row["variables"].dump());
        TemplateJinjaJson variables = row["variables"];
        variables["documents"] = nullptr;
        TemplateJinjaJson generated = TemplateJinjaJson::array();
        const std::string source = jinja_fixture()["templates"][row["template"]];
        CHECK(outcome(source, variables, &generated) == row["text"]);
        CHECK(generated == row["generated"]);
        ++rows;
    }
    CHECK(rows >= 50);
}
