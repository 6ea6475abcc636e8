// Hugging Face's conventions around a template: apply_chat_template's inputs, and a folder's files.
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "tokens/template/template_files.h"
#include "tokens/template/values/json_text.h"

using namespace dslaunch;
using namespace dslaunch::tokens;
using namespace dslaunch::test;

namespace {

constexpr const char* kPlainChat =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{{ '' if tools is none else tools | "
    "length }}";

ChatInput input_of(const char* messages) {
    ChatInput input;
    input.messages = jinja::value_of_json(messages);
    return input;
}

ChatTemplate plain_chat() {
    return ChatTemplate::parse(kPlainChat, "plain",
                               {{"bos_token", jinja::value_of_json("\"<s>\"")}});
}

}  // namespace

TEST_CASE("a conversation is rendered with special tokens, prompt and tools") {
    ChatInput input = input_of(R"([{"role": "user", "content": "Hi"}])");
    CHECK(plain_chat().apply(input).text == "<s><user>Hi</s>");
    input.add_generation_prompt = true;
    input.tools = jinja::value_of_json("[{}, {}]");
    CHECK(plain_chat().apply(input).text == "<s><user>Hi</s><assistant>2");
    input.more.emplace_back("bos_token", jinja::value_of_json("\"!\""));
    CHECK(plain_chat().apply(input).text == "!<user>Hi</s><assistant>2");
}

TEST_CASE("keys of a message without a value are left out, and reasoning has each of its names") {
    const ChatTemplate names = ChatTemplate::parse(
        "{% for m in messages %}{{ m.keys() | list | join(',') }}:{{ m.reasoning_content }};"
        "{% endfor %}",
        "names");
    // As transformers 5.23 gives them.
    CHECK(names
              .apply(input_of(R"([{"role": "a", "content": null, "tool_calls": null},
                                   {"role": "a", "reasoning": "r"},
                                   {"role": "a", "thinking": "t", "content": "c"},
                                   {"reasoning_content": "x", "thinking": "y"}])"))
              .text ==
          "role:;thinking,role,reasoning,reasoning_content:r;"
          "role,thinking,content,reasoning_content:t;reasoning_content,thinking:x;");
}

TEST_CASE("the last message is continued where its content ends") {
    ChatInput input = input_of(R"([{"role": "user", "content": "Hi"},
                                   {"role": "assistant", "content": "Well, "}])");
    input.continue_final_message = true;
    CHECK(plain_chat().apply(input).text == "<s><user>Hi</s><assistant>Well, ");
    const ChatTemplate trims =
        ChatTemplate::parse("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "trims");
    CHECK(trims.apply(input).text == "<Hi><Well,");
    const ChatTemplate drops = ChatTemplate::parse("{{ messages[0].content }}", "drops");
    CHECK_THAT(error_of(ExitCode::kInput, [&] { static_cast<void>(drops.apply(input)); }),
               Catch::Contains("cannot be continued"));
    input.add_generation_prompt = true;
    CHECK_THAT(error_of(ExitCode::kInput, [&] { static_cast<void>(trims.apply(input)); }),
               Catch::Contains("use one of them"));
}

TEST_CASE("what is no conversation is refused") {
    for (const char* messages : {"[]", "{}", "[1]", "\"x\"", "null"}) {
        INFO(messages);
        CHECK(error_of(ExitCode::kInput, [&] {
                  static_cast<void>(plain_chat().apply(input_of(messages)));
              }) != "accepted");
    }
}

TEST_CASE("a mark in a macro has no place") {
    const RenderedChat chat =
        ChatTemplate::parse(
            "{% macro f() %}{% generation %}x{% endgeneration %}{% endmacro %}ab{{ f() }}", "t")
            .render(nlohmann::ordered_json::object());
    CHECK(chat.has_lost_mark);
    CHECK(chat.generated.empty());
}

TEST_CASE("templates come from a folder's files in transformers' order") {
    TemplateSources sources;
    CHECK(!ChatTemplates::parse("folder", sources));
    sources.tokenizer_config = R"({"bos_token": {"content": "<B>"}, "eos_token": "<E>",
        "pad_token": null, "extra_special_tokens": {"image_token": "<I>"},
        "chat_template": [{"name": "default", "template": "d{{ bos_token }}{{ eos_token }}{{ x }}"},
                          {"name": "tool_use", "template": "t{{ image_token }}"}]})";
    const auto two = ChatTemplates::parse("folder", sources);
    REQUIRE(two);
    const auto text = [](const ChatTemplate& chat) {
        return chat.render(TemplateVariables{}).text;
    };
    const ChatInput any = input_of(R"([{"role": "user", "content": ""}])");
    CHECK(two->choose(false).apply(any).text == "d<B><E>");
    CHECK(two->choose(true).apply(any).text == "t<I>");
    CHECK(two->choose(false, "tool_use").apply(any).text == "t<I>");
    CHECK_THAT(error_of(ExitCode::kInput, [&] { static_cast<void>(two->choose(false, "rag")); }),
               Catch::Contains("it has default, tool_use"));
    sources.template_json = R"({"chat_template": "json"})";
    sources.template_file = "file";
    CHECK(text(ChatTemplates::parse("folder", sources)->choose(true)) == "file");
    sources.template_file.reset();
    sources.tokenizer_config.reset();
    CHECK(text(ChatTemplates::parse("folder", sources)->choose(true)) == "json");
    sources.template_json = R"({"chat_template": 5})";
    CHECK_THAT(error_of(ExitCode::kInput,
                        [&] { static_cast<void>(ChatTemplates::parse("folder", sources)); }),
               Catch::Contains("chat_template holds something"));
}

TEST_CASE("templates are read from a folder") {
    const TemporaryFolder folder;
    CHECK(!ChatTemplates::read(folder.path()));
    write_file(std::string(folder.path()) + "/chat_template.jinja", "{{ eos_token }}one");
    write_file(std::string(folder.path()) + "/chat_templates/rag.jinja", "two");
    write_file(std::string(folder.path()) + "/special_tokens_map.json", R"({"eos_token": "<E>"})");
    const auto read = ChatTemplates::read(folder.path());
    REQUIRE(read);
    CHECK(read->names() == std::vector<std::string>{"default", "rag"});
    CHECK(read->choose(true).apply(input_of(R"([{"role": "user"}])")).text == "<E>one");
}
