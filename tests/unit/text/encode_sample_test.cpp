// A sample as tokens: when a chat template is used, which token ends a sample, and which parts a
// template must not leave out. Each word tN of the fixture's tokenizer is token N, and </s> is
// token 2.
#include "text/rows/encode_sample.h"

#include "support/catch.h"
#include "support/places.h"

using namespace dslaunch;
using namespace dslaunch::text;

namespace {

const Tokenizer& words() {
    static const Tokenizer tokenizer =
        Tokenizer::load(test::fixture_path("preferences/tokenizer.json"));
    return tokenizer;
}

// Turns begin with t8 and t9, and end with t7. Reasoning, tools and their calls are not written.
constexpr const char* kEncodeSampleTurns =
    "{% for m in messages %}{{ 't9' if m.role == 'assistant' else 't8' }} {{ m.content }} t7 "
    "{% endfor %}{% if add_generation_prompt %}t9 {% endif %}";
// The same template, but it writes all of these.
constexpr const char* kWriting =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for d in documents or [] %}{{ d.text }} {% endfor %}"
    "{% for m in messages %}{{ 't9' if m.role == 'assistant' else 't8' }} {{ m.content }} "
    "{{ m.reasoning_content }} {% for c in m.tool_calls %}{{ c.function.name }} {% endfor %}t7 "
    "{% endfor %}{% if add_generation_prompt %}t9 {% endif %}";

struct Encoded {
    std::vector<int32_t> tokens, learned;  // all tokens; the learned tokens
    std::string lost, reason;
};

Encoded encoded(const char* line, const char* source, EncodeRules rules = {.end_tokens = {2, 7}},
                PreferenceSide side = PreferenceSide::kChosen) {
    const ParsedRow row = parse_row(line);
    INFO(row.reason);
    REQUIRE(row.sample);
    std::optional<ChatTemplates> chat;
    if (source != nullptr) {
        TemplateSources sources;
        sources.template_file = source;
        chat = ChatTemplates::parse("m", sources);
    }
    rules.tokenizer = &words();
    rules.chat = chat ? &*chat : nullptr;
    const EncodedSample made = encode_sample(*row.sample, rules, side);
    Encoded found{made.document.tokens, {}, made.lost, made.reason};
    for (size_t i = 0; i < found.tokens.size(); ++i)
        if (made.document.is_learned[i]) found.learned.push_back(found.tokens[i]);
    return found;
}

using Ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("a text that ends with an end token gets no second one") {
    CHECK(encoded(R"({"text": "t3 t4"})", kEncodeSampleTurns).tokens == Ids{3, 4, 2});
    CHECK(encoded(R"({"text": "t3 t4 </s>"})", kEncodeSampleTurns).tokens == Ids{3, 4, 2});
    // Each of the model's end tokens ends a text.
    CHECK(encoded(R"({"text": "t3 t4 t7"})", kEncodeSampleTurns).tokens == Ids{3, 4, 7});
    CHECK(encoded(R"({"prompt": "t3", "completion": " t4 </s>"})", nullptr).learned == Ids{4, 2});
    CHECK(encoded(R"({"text": "t3 t4"})", kEncodeSampleTurns, {}).tokens == Ids{3, 4});
}

TEST_CASE("text that goes on is no chat unless that is asked for") {
    constexpr const char* kLine = R"({"prompt": "t3", "completion": " t4"})";
    const Encoded text = encoded(kLine, kEncodeSampleTurns);
    CHECK(text.tokens == Ids{3, 4, 2});
    CHECK(text.learned == Ids{4, 2});
    const EncodeRules asked{.end_tokens = {2}, .makes_chats = true};
    const Encoded chat = encoded(kLine, kEncodeSampleTurns, asked);
    CHECK(chat.tokens == Ids{8, 3, 7, 9, 4, 7});
    CHECK(chat.learned == Ids{4, 7});
    // Without a template there is no chat.
    CHECK(encoded(kLine, nullptr, asked).tokens == Ids{3, 4, 2});

    constexpr const char* kPair = R"({"prompt": "t3", "chosen": " t4", "rejected": " t5 t6"})";
    CHECK(
        encoded(kPair, kEncodeSampleTurns, {.end_tokens = {2}}, PreferenceSide::kRejected).tokens ==
        Ids{3, 5, 6, 2});
    CHECK(encoded(kPair, kEncodeSampleTurns, asked, PreferenceSide::kRejected).learned ==
          Ids{5, 6, 7});
    // A question is not a text to continue.
    CHECK(encoded(R"({"question": "t3", "answer": "t4"})", kEncodeSampleTurns).tokens ==
          Ids{8, 3, 7, 9, 4, 7});
}

TEST_CASE("a part that the template does not write is told") {
    struct Row {
        const char* line;
        const char* part;
        Ids without, with;  // tokens of a template that leaves it out, and of one that writes it
    };
    const Row rows[] = {
        {R"({"question": "t3", "answer": "t4", "tools": [{"function": {"name": "t5"}}]})",
         "tools",
         {8, 3, 7, 9, 4, 7},
         {5, 8, 3, 7, 9, 4, 7}},
        {R"({"question": "t3", "answer": "t4", "documents": [{"text": "t5"}]})",
         "documents",
         {8, 3, 7, 9, 4, 7},
         {5, 8, 3, 7, 9, 4, 7}},
        {R"({"messages": [{"role": "user", "content": "t3"}, {"role": "assistant", "content": "t4",
            "tool_calls": [{"function": {"name": "t5", "arguments": {}}}]}]})",
         "tool_calls",
         {8, 3, 7, 9, 4, 7},
         {8, 3, 7, 9, 4, 5, 7}},
        {R"({"messages": [{"role": "user", "content": "t3"}, {"role": "assistant",
            "content": "t4", "reasoning_content": "t6"}]})",
         "reasoning",
         {8, 3, 7, 9, 4, 7},
         {8, 3, 7, 9, 4, 6, 7}},
    };
    for (const Row& row : rows) {
        INFO(row.line);
        const Encoded lost = encoded(row.line, kEncodeSampleTurns),
                      written = encoded(row.line, kWriting);
        CHECK(lost.lost == row.part);
        CHECK(lost.tokens == row.without);
        CHECK(written.lost.empty());
        CHECK(written.tokens == row.with);
    }
    // A template that does not write a tool's name writes nothing that could call it.
    constexpr const char* kNameless =
        "{% for t in tools or [] %}{{ t.name }} t6 {% endfor %}"
        "{% for m in messages %}t8 {{ m.content }} t7 {% endfor %}";
    CHECK(encoded(rows[0].line, kNameless).lost == "tools");
}

TEST_CASE("a call that is all of an answer is refused where the template writes no calls") {
    constexpr const char* kCall =
        R"({"conversations": [{"from": "human", "value": "t3"}, {"from": "function_call",
            "value": "{\"name\": \"t5\", \"arguments\": {}}"}],
            "tools": "[{\"function\": {\"name\": \"t6\"}}]"})";
    CHECK_THAT(encoded(kCall, kEncodeSampleTurns).reason,
               Catch::Contains("the chat template does not write tool calls"));
    CHECK(encoded(kCall, kWriting).learned == Ids{5, 7});
    const auto message = [](const char* content, const char* more) {
        return std::string(R"({"messages": [{"role": "user", "content": "t3"}, {"role":
            "assistant", "content": )") +
               content + R"(, "tool_calls": [{"function": {"name": "t5", "arguments": {}}}])" +
               more + R"(}, {"role": "user", "content": "t3"}, {"role": "assistant", "content":
            "t4"}]})";
    };
    for (const char* nothing : {R"("")", "null"}) {
        INFO(nothing);
        CHECK_THAT(encoded(message(nothing, "").c_str(), kEncodeSampleTurns).reason,
                   Catch::Contains("the chat template does not write tool calls"));
        CHECK(encoded(message(nothing, "").c_str(), kWriting).learned == Ids{5, 7, 4, 7});
        CHECK(encoded(message(nothing, R"(, "weight": 0)").c_str(), kEncodeSampleTurns).learned ==
              Ids{4, 7});
    }
    CHECK(encoded(message(R"("t6")", "").c_str(), kEncodeSampleTurns).learned == Ids{6, 7, 4, 7});
}

TEST_CASE("what says that it is not learned is not learned with everything else either") {
    constexpr const char* kLine =
        R"({"messages": [{"role": "user", "content": "t3"}, {"role": "assistant", "content": "t4",
            "weight": 0}, {"role": "user", "content": "t5"}, {"role": "assistant",
            "content": "t6"}]})";
    CHECK(encoded(kLine, kEncodeSampleTurns).learned == Ids{6, 7});
    CHECK_THAT(encoded(kLine, kEncodeSampleTurns, {.end_tokens = {}, .learns_all = true}).reason,
               Catch::Contains("a message is marked as not learned"));
}

TEST_CASE("the system text that a template adds is not learned with a first answer") {
    constexpr const char* kGreeting =
        R"({"messages": [{"role": "assistant", "content": "t3"}, {"role": "user", "content": "t4"},
            {"role": "assistant", "content": "t6"}]})";
    const std::string source =
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}t8 t5 t7 {% endif %}" +
        std::string(kEncodeSampleTurns).substr(std::string_view("{% for m in messages %}").size());
    const Encoded made = encoded(kGreeting, source.c_str());
    CHECK(made.tokens == Ids{8, 5, 7, 9, 3, 7, 8, 4, 7, 9, 6, 7});
    CHECK(made.learned == Ids{3, 7, 6, 7});
}
