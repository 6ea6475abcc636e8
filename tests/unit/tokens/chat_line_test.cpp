// Rows of training text: which form a line has, what it says, and why a line is refused.
#include "tokens/chat/chat_line.h"
#include "support/catch.h"
#include "tokens/chat/chat_messages.h"

using namespace dslaunch;
using namespace dslaunch::tokens;

namespace {

// "user:a|assistant:b"
std::string spoken(const jinja::Values& messages) {
    std::string text;
    for (const jinja::Value& message : messages)
        text += (text.empty() ? "" : "|") + role_of(message) + ":" + content_text(message);
    return text;
}

struct GoodRow {
    const char* line;
    ChatFormat format;
    const char* messages;
    size_t prompt_messages;
};
constexpr GoodRow kGoodRows[] = {
    {R"({"text": "all"})", ChatFormat::kText, "", 0},
    {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
     ChatFormat::kMessages, "user:a|assistant:b", 0},
    {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
        {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null,
        "tool_calls": []}]})",
     ChatFormat::kMessages, "user:ab|assistant:", 0},
    {R"({"system": "s", "conversations": [{"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"}]})",
     ChatFormat::kConversations, "system:s|user:a|assistant:b", 0},
    {R"({"conversations": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}]})",
     ChatFormat::kConversations, "user:a|assistant:b", 0},
    {R"({"instruction": "i", "input": "x", "output": "o"})", ChatFormat::kInstruction,
     "user:i\nx|assistant:o", 1},
    {R"({"instruction": "i", "input": "", "output": "o", "system": "s"})", ChatFormat::kInstruction,
     "system:s|user:i|assistant:o", 2},
    {R"({"prompt": "p", "completion": "c"})", ChatFormat::kCompletion, "user:p|assistant:c", 1},
    {R"({"prompt": [{"role": "user", "content": "p"}],
        "completion": [{"role": "assistant", "content": "c"}]})",
     ChatFormat::kCompletion, "user:p|assistant:c", 1},
    {R"({"query": "q", "response": "r"})", ChatFormat::kQuery, "user:q|assistant:r", 1},
    {R"({"prompt": "p", "chosen": "c", "rejected": "r"})", ChatFormat::kPreference,
     "user:p|assistant:c", 1},
    {R"({"chosen": "H: a A: yes", "rejected": "H: a A: no"})", ChatFormat::kPreference,
     "user:H: a A:|assistant: yes", 1},
    {R"({"chosen": "é1 ü", "rejected": "é1 ö"})", ChatFormat::kPreference, "user:é1|assistant: ü",
     1},
    {R"({"prompt": "p", "chosen": [{"role": "user", "content": "p"},
        {"role": "assistant", "content": "c"}], "rejected": [{"role": "user", "content": "p"},
        {"role": "assistant", "content": "r"}]})",
     ChatFormat::kPreference, "user:p|assistant:c", 1},
    {R"({"prompt": [{"role": "user", "content": "p"}], "chosen": [{"role": "assistant",
        "content": "c"}], "rejected": [{"role": "assistant", "content": "r"}]})",
     ChatFormat::kPreference, "user:p|assistant:c", 1},
    {R"({"system": "s", "question": "q", "chosen": "q c", "rejected": "q r"})",
     ChatFormat::kPreference, "system:s|user:q|assistant:q c", 2},
    {R"({"instruction": "i", "input": "x", "chosen": "c", "rejected": "r"})",
     ChatFormat::kPreference, "user:i\nx|assistant:c", 1},
    {R"({"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "p"}, {"role": "assistant", "content": "c"}],
        "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "p"}, {"role": "assistant", "content": "r"}]})",
     ChatFormat::kPreference, "user:a|assistant:b|user:p|assistant:c", 3},
    {R"({"prompt": "p", "chosen": [{"role": "assistant", "content": null,
        "tool_calls": [{"name": "t"}]}], "rejected": [{"role": "assistant", "content": "r"}]})",
     ChatFormat::kPreference, "user:p|assistant:", 1},
    {R"({"prompt": "p", "chosen": "same", "rejected": "same"})", ChatFormat::kPreference,
     "user:p|assistant:same", 1},
};

struct BadRow {
    const char* line;
    const char* reason;
};
constexpr BadRow kBadRows[] = {
    {"", "the line is empty"},
    {"{", "no JSON at byte"},
    {"[1]", "the line holds no JSON object"},
    {"{}", "the row has no keys"},
    {R"({"a": 1, "b": 2})", "the row has the keys a, b, and none of"},
    {R"({"text": ""})", "text: the text is empty"},
    {R"({"text": 5})", "text: a text is due"},
    {R"({"messages": []})", "messages: the list has no message"},
    {R"({"messages": [5]})", "messages[0]: an object"},
    {R"({"messages": [{"content": "x"}]})", "messages[0].role: a text is due"},
    {R"({"messages": [{"role": "user"}]})", "messages[0].content: a text is due"},
    {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content: a text or a list"},
    {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
     "messages[0].content[0].type: \"image\" is no text"},
    {R"({"messages": [{"role": "user", "content": "x"}]})", "no message is the assistant's"},
    {R"({"conversations": [{"from": "alien", "value": "x"}]})",
     "conversations[0].from: \"alien\" is nobody known"},
    {R"({"instruction": "i", "output": 1})", "output: a text is due"},
    {R"({"prompt": "p", "completion": []})", "prompt and completion: both are texts"},
    {R"({"chosen": "a", "rejected": []})", "chosen and rejected: both are texts"},
    {R"({"prompt": "p", "chosen": "", "rejected": "r"})", "chosen: the answer is empty"},
    {R"({"prompt": "p", "chosen": "c", "rejected": " \n"})", "rejected: the answer is empty"},
    {R"({"chosen": "H: a A:", "rejected": "H: a A: no"})", "chosen: the answer is empty"},
    {R"({"prompt": "p", "chosen": [{"role": "user", "content": "c"}],
        "rejected": [{"role": "assistant", "content": "r"}]})",
     "chosen: no message is the assistant's"},
    {R"({"prompt": "p", "chosen": "c", "rejected": 5})", "chosen and rejected: both are texts"},
    {R"({"question": 5, "chosen": "c", "rejected": "r"})", "question: a text is due"},
    {R"({"chosen": "c"})", "the row has the keys chosen, and none of"},
    {R"({"query": "q", "response": "r", "tools": 5})", "tools: a list is due"},
    {R"({"text": "\ud83d"})", "no JSON at byte"},
    {R"({"text": "a", "n": 99999999999999999999})", "does not fit 64 bits"},
};

}  // namespace

TEST_CASE("a row's form is found and its conversation read") {
    for (const GoodRow& row : kGoodRows) {
        INFO(row.line);
        const ChatLine line = parse_chat_line(row.line);
        INFO(line.reason);
        REQUIRE(line.sample);
        CHECK(chat_format_name(line.sample->format) == std::string(chat_format_name(row.format)));
        CHECK(spoken(line.sample->messages) == row.messages);
        CHECK(line.sample->prompt_messages == row.prompt_messages);
        CHECK(line.sample->rejected.empty() == (row.format != ChatFormat::kPreference));
    }
}

TEST_CASE("a row that cannot be trained is refused with the place") {
    for (const BadRow& row : kBadRows) {
        INFO(row.line);
        const ChatLine line = parse_chat_line(row.line);
        CHECK(!line.sample);
        CHECK_THAT(line.reason, Catch::Contains(row.reason));
    }
}

TEST_CASE("tools come as a list or as its JSON, with the template's own variables") {
    for (const char* tools : {R"([{"name": "t"}])", R"("[{\"name\": \"t\"}]")"}) {
        const ChatLine line = parse_chat_line(
            std::string(R"({"query": "q", "response": "r", "chat_template_kwargs": {"x": 1}, )") +
            "\"tools\": " + tools + "}");
        REQUIRE(line.sample);
        CHECK(line.sample->tools.items().size() == 1);
        CHECK(line.sample->more.size() == 1);
    }
}
