// Hugging Face's conventions around a template: apply_chat_template's inputs, and a folder's files.
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "text/chat_template/template_files.h"
#include "text/chat_template/values/json_text.h"

using namespace dslaunch;
using namespace dslaunch::text;
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
    // The texts are transformers 5.23's.
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
               Catch::Contains("use only one of them"));
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
               Catch::Contains("available: default, tool_use"));
    sources.template_json = R"({"chat_template": "json"})";
    sources.template_file = "file";
    CHECK(text(ChatTemplates::parse("folder", sources)->choose(true)) == "file");
    sources.template_file.reset();
    sources.tokenizer_config.reset();
    CHECK(text(ChatTemplates::parse("folder", sources)->choose(true)) == "json");
    sources.template_json = R"({"chat_template": 5})";
    CHECK_THAT(error_of(ExitCode::kInput,
                        [&] { static_cast<void>(ChatTemplates::parse("folder", sources)); }),
               Catch::Contains("each entry of chat_template must have"));
}

TEST_CASE("templates are read from a folder") {
    const TemporaryFolder folder;
    CHECK(!ChatTemplates::read(folder.path()));
    write_file(std::string(folder.path()) + "/chat_template.jinja", "{{ eos_token }}one");
    write_file(std::string(folder.path()) + "/additional_chat_templates/rag.jinja", "two");
    write_file(std::string(folder.path()) + "/special_tokens_map.json", R"({"eos_token": "<E>"})");
    const auto read = ChatTemplates::read(folder.path());
    REQUIRE(read);
    CHECK(read->names() == std::vector<std::string>{"default", "rag"});
    CHECK(read->choose(true).apply(input_of(R"([{"role": "user"}])")).text == "<E>one");
}

namespace {

// Templates that use contents and calls in the ways of models' own templates, in short form.
constexpr const char* kTakesText =
    "{% for m in messages %}<{{ m.role }}>{{ '' + m.content }}{% endfor %}";
constexpr const char* kPrints = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr const char* kDumps =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{{ m.content | tojson }}{% endif %}{% endfor %}";
constexpr const char* kTakesParts =
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}"
    "{{ p.text }}{% endif %}{% endfor %}{% endfor %}";
constexpr const char* kTakesBoth =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
constexpr const char* kPartsOfUsers =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'user' and m.content is not string %}"
    "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% else %}{{ m.content.strip() }}"
    "{% endif %}{% endfor %}";
constexpr const char* kWithDeveloper =
    "{% for m in messages %}{% if m.role in ['system', \"developer\"] %}<instructions>"
    "{% else %}<{{ m.role }}>{% endif %}{{ m.content }}{% endfor %}";

std::string applied(const char* source, const char* messages) {
    return ChatTemplate::parse(source, "t").apply(input_of(messages)).text;
}

}  // namespace

TEST_CASE("contents come to a template in a form that it reads") {
    constexpr const char* kParts = R"([
        {"role": "system", "content": [{"type": "text", "text": "s1 "}, {"type": "text",
         "text": "s2"}]},
        {"role": "user", "content": [{"type": "text", "text": "u1 "}, {"type": "input_text",
         "text": "u2"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}])";
    constexpr const char* kTexts = R"([{"role": "system", "content": "s1 s2"},
        {"role": "user", "content": "u1 u2"}, {"role": "assistant", "content": "no"}])";
    constexpr const char* kJoined = "<system>s1 s2<user>u1 u2<assistant>no";
    for (const char* source : {kTakesText, kPrints, kDumps, kTakesParts}) {
        INFO(source);
        CHECK(applied(source, kParts) == kJoined);
        CHECK(applied(source, kTexts) == kJoined);
    }
    // Like MiniMax's template: a text anywhere is an error.
    constexpr const char* kFirstParts =
        "{% for m in messages %}<{{ m.role }}>{{ '' + m.content[0]['text'] }}{% endfor %}";
    CHECK(applied(kFirstParts, kTexts) == kJoined);
    CHECK(applied(kTakesBoth, kTexts) == kJoined);
    CHECK(applied(kTakesBoth, kParts) == "<system>[s1 ][s2]<user>[u1 ][u2]<assistant>[no]");
    CHECK(applied(kPartsOfUsers, kParts) == "<system>s1 s2<user>[u1 ][u2]<assistant>no");
    // Contents that are not text stay unchanged.
    CHECK(applied(kPrints, R"([{"role": "user", "content": [{"type": "image"}]}])") ==
          "<user>[{'type': 'image'}]");
    // A template that does not show a content gets it unchanged.
    CHECK(applied("{{ messages[0].content is string }}", kParts) == "False");
}

TEST_CASE("a developer is the system where a template has no developers") {
    constexpr const char* kMessages = R"([{"role": "developer", "content": "d"},
                                         {"role": "user", "content": "u"}])";
    CHECK(applied(kPrints, kMessages) == "<system>d<user>u");
    CHECK(applied(kTakesParts, kMessages) == "<system>d<user>u");
    CHECK(applied(kWithDeveloper, kMessages) == "<instructions>d<user>u");
}

TEST_CASE("the arguments of calls come to a template as objects or as texts, as it wants them") {
    constexpr const char* kCalls =
        "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}(";
    constexpr const char* kEnds = "){% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    const auto source = [&](const char* shows) { return std::string(kCalls) + shows + kEnds; };
    const auto messages = [](const std::string& arguments) {
        return R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "i", "type":
            "function", "function": {"name": "f", "arguments": )" +
               arguments + "}}]}]";
    };
    const std::string text = messages(R"("{\"x\":  1}")");
    const std::string object = messages(R"({"x": 1})");
    struct Row {
        const char* shows;
        const char *of_text, *of_object;
    };
    const Row rows[] = {
        // Like Qwen2.5, Llama 3, GLM and gpt-oss: only objects.
        {"{{ c.function.arguments | tojson }}", R"(({"x": 1}))", R"(({"x": 1}))"},
        {"{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}", "(x=1)",
         "(x=1)"},
        {"{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}", "(x=1)",
         "(x=1)"},
        {"{{ c.function | tojson }}", R"(({"name": "f", "arguments": {"x": 1}}))",
         R"(({"name": "f", "arguments": {"x": 1}}))"},
        // Like DeepSeek: only a text.
        {"{{ 'a' + c.function.arguments }}", R"((a{"x":  1}))", R"((a{"x": 1}))"},
        {"{{ c.function.arguments }}", R"(({"x":  1}))", R"(({"x": 1}))"},
        // Like Qwen3: both, and each stays as it came.
        {"{{ c.function.arguments if c.function.arguments is string else c.function.arguments | "
         "tojson }}",
         R"(({"x":  1}))", R"(({"x": 1}))"},
    };
    for (const Row& row : rows) {
        INFO(row.shows);
        CHECK(applied(source(row.shows).c_str(), text.c_str()) == row.of_text);
        CHECK(applied(source(row.shows).c_str(), object.c_str()) == row.of_object);
    }
    const std::string takes_both = source(rows[6].shows);
    ChatInput served = input_of(text.c_str());
    served.prefers_objects = true;
    CHECK(ChatTemplate::parse(takes_both, "t").apply(served).text == R"(({"x": 1}))");
    const std::string takes_text = source(rows[4].shows);
    CHECK(ChatTemplate::parse(takes_text, "t").apply(served).text == R"((a{"x":  1}))");
    const std::string wants_object = source("{{ c.function.arguments | tojson }}");
    CHECK(applied(wants_object.c_str(), messages("\"\"").c_str()) == "({})");
    CHECK(applied(wants_object.c_str(), messages(R"("{\"n\": 18446744073709551615}")").c_str()) ==
          R"(({"n": 18446744073709551615}))");
    for (const char* wrong : {R"("{x")", R"("[1]")"})
        CHECK_THAT(
            error_of(
                ExitCode::kInput,
                [&] { static_cast<void>(applied(wants_object.c_str(), messages(wrong).c_str())); }),
            Catch::Contains(
                "the template needs the arguments of the call of `f` as a JSON object"));
}

TEST_CASE("a call beside nothing comes to a template beside the nothing that it reads") {
    // Like DeepSeek's templates: one asks for null, one puts a content before the call. Others look
    // for calls first, or know no calls.
    constexpr const char* kWantsNull =
        "{% for m in messages %}{% if m['content'] is none %}{% for c in m['tool_calls'] %}"
        "({{ '' + c.function.arguments }}){% endfor %}{% else %}{{ m.role + ':' + m['content'] }}"
        "{% endif %}{% endfor %}";
    constexpr const char* kAddsContent =
        "{% for m in messages %}{{ m.role + ':' + m.content }}{% if 'tool_calls' in m %}"
        "{% for c in m.tool_calls %}({{ '' + c.function.arguments }}){% endfor %}end{% endif %}"
        "{% endfor %}";
    constexpr const char* kCallsFirst =
        "{% for m in messages %}{% if m.tool_calls %}{{ 'content' in m }}{% for c in m.tool_calls "
        "%}({{ '' + c.function.arguments }}){% endfor %}{% else %}{{ m.role + ':' + m.content }}"
        "{% endif %}{% endfor %}";
    constexpr const char* kParts =
        "{% for m in messages %}{{ m.role + ':' + m.content[0]['text'] }}{% for c in m.tool_calls "
        "%}({{ '' + c.function.arguments }}){% endfor %}{% endfor %}";
    struct Row {
        const char* source;
        const char *of_empty, *of_null, *of_words;
    };
    const Row rows[] = {
        {kWantsNull, "user:q({})", "user:q({})", "user:qassistant:words"},
        {kAddsContent, "user:qassistant:({})end", "user:qassistant:({})end",
         "user:qassistant:words({})end"},
        {kCallsFirst, "user:qTrue({})", "user:qFalse({})", "user:qTrue({})"},
        {kParts, "user:qassistant:({})", "user:qassistant:({})", "user:qassistant:words({})"},
    };
    const auto messages = [](const char* content, const char* calls) {
        return std::string(R"([{"role": "user", "content": "q"}, {"role": "assistant",)") +
               content + R"("tool_calls": )" + calls + "}]";
    };
    constexpr const char* kCalls =
        R"([{"id": "i", "type": "function", "function": {"name": "f", "arguments": "{}"}}])";
    for (const Row& row : rows) {
        INFO(row.source);
        const auto text = [&](const char* content) {
            return applied(row.source, messages(content, kCalls).c_str());
        };
        CHECK(text(R"("content": "",)") == row.of_empty);
        CHECK(text(R"("content": null,)") == row.of_null);
        CHECK(text("") == row.of_null);
        CHECK(text(R"("content": "words",)") == row.of_words);
        // A client that echoes an answer sends the answer's empty list of calls. If the answer was
        // empty, its content is null.
        CHECK(applied(row.source, messages(R"("content": null,)", "[]").c_str()) ==
              "user:qassistant:");
        CHECK(applied(row.source, messages(R"("content": "words",)", "[]").c_str()) ==
              "user:qassistant:words");
    }
    // If a template takes arguments only as texts, a tool's result with parts comes as a text.
    constexpr const char* kResults =
        "{% for m in messages %}{{ '' + m.content }}{% for c in m.tool_calls %}"
        "({{ '' + c.function.arguments }}){% endfor %}{% endfor %}";
    constexpr const char* kResult =
        R"([{"role": "tool", "content": [{"type": "text", "text": "4"}, {"type": "text", "text":
            "2"}]}])";
    CHECK(applied(kResults, kResult) == "42");
    CHECK_THAT(error_of(ExitCode::kInput,
                        [&] {
                            static_cast<void>(applied(
                                kTakesText, messages(R"("content": null,)", kCalls).c_str()));
                        }),
               Catch::Contains("message 2: it has only a tool call"));
    CHECK(applied(kTakesText, messages(R"("content": "",)", kCalls).c_str()) ==
          "<user>q<assistant>");
}
