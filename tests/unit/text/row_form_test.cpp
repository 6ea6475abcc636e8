// Rows of training text: the form of a line, its content, and the reasons to refuse a line.
#include "text/chat/row_form.h"

#include "support/catch.h"
#include "text/chat/chat_messages.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"

using namespace dslaunch;
using namespace dslaunch::text;

namespace {

// Returns a text like "user:a|assistant:b".
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

    // A system text beside messages, under either name, and one that the messages have already.
    {R"({"system": "s", "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}]})",
     ChatFormat::kMessages, "system:s|user:a|assistant:b", 0},
    {R"({"system_prompt": "s", "conversations": [{"from": "Human", "value": "a"},
        {"from": "GPT", "value": "b"}]})",
     ChatFormat::kConversations, "system:s|user:a|assistant:b", 0},
    {R"({"system": "s", "messages": [{"role": "system", "content": " s "},
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
     ChatFormat::kMessages, "system: s |user:a|assistant:b", 0},
    {R"({"id": "1", "system_prompt": "s", "question": "q", "response": "r"})", ChatFormat::kQuery,
     "system:s|user:q|assistant:r", 2},

    // Earlier turns in the form of LLaMA-Factory and ms-swift. Their answers are learned.
    {R"({"instruction": "i", "input": "", "output": "o", "history": [["a", "b"], ["c", "d"]]})",
     ChatFormat::kInstruction, "user:a|assistant:b|user:c|assistant:d|user:i|assistant:o", 0},
    {R"({"system": "s", "query": "q", "response": "r", "history": [["a", "b"]]})",
     ChatFormat::kQuery, "system:s|user:a|assistant:b|user:q|assistant:r", 0},
    {R"({"instruction": "i", "output": "o", "history": []})", ChatFormat::kInstruction,
     "user:i|assistant:o", 1},

    // Questions and answers under other names.
    {R"({"instruction": "i", "context": "c", "response": "r", "category": "x"})",
     ChatFormat::kInstruction, "user:i\nc|assistant:r", 1},
    {R"({"question": "q", "answer": "a"})", ChatFormat::kQuery, "user:q|assistant:a", 1},
    {R"({"input": "i", "output": "o"})", ChatFormat::kQuery, "user:i|assistant:o", 1},
    {R"({"inputs": "i", "targets": "o", "language": "x"})", ChatFormat::kQuery,
     "user:i|assistant:o", 1},
    {R"({"prompt": "p", "response": "r", "helpfulness": 4})", ChatFormat::kQuery,
     "user:p|assistant:r", 1},
    {R"({"input": [{"role": "user", "content": "p"}], "output": "r", "reasoning": "on"})",
     ChatFormat::kQuery, "user:p|assistant:r", 1},
    // A final answer beside its reasons, and a rendered row beside its parts.
    {R"({"problem": "p", "solution": "because 5", "answer": "5"})", ChatFormat::kQuery,
     "user:p|assistant:because 5", 1},
    {R"({"instruction": "i", "input": "x", "output": "o", "text": "### i\n## x\n# o",
        "prompt": "### i\n## x\n# o"})",
     ChatFormat::kInstruction, "user:i\nx|assistant:o", 1},
    {R"({"prompt": "a", "prompt_id": "1", "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}]})",
     ChatFormat::kMessages, "user:a|assistant:b", 0},
    {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "answer": "another", "label": {"quality": 1}})",
     ChatFormat::kMessages, "user:a|assistant:b", 0},

    // Turns in other forms.
    {R"({"conversation": [{"input": "a", "output": "b"}, {"input": "c", "output": "d"}]})",
     ChatFormat::kConversations, "user:a|assistant:b|user:c|assistant:d", 0},
    {R"({"system": "s", "conversation": [{"human": "a", "assistant": "b"}]})",
     ChatFormat::kConversations, "system:s|user:a|assistant:b", 0},
    {R"({"conversations": ["a", "b", "c", "d"], "source": "x"})", ChatFormat::kConversations,
     "user:a|assistant:b|user:c|assistant:d", 0},
    {R"({"conversations": [{"from": "human", "value": "a"}, {"from": "function_call",
        "value": "{\"name\": \"f\", \"arguments\": {}}"}, {"from": "observation", "value": "7"},
        {"from": "gpt", "value": "b"}], "tools": "[{\"name\": \"f\"}]"})",
     ChatFormat::kConversations, "user:a|assistant:|tool:7|assistant:b", 0},
    {R"({"messages": [{"role": "human", "content": "a"}, {"role": "model", "content": "b"}]})",
     ChatFormat::kMessages, "user:a|assistant:b", 0},
    {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null,
        "function_call": {"name": "f", "arguments": "{}"}}, {"role": "function", "name": "f",
        "content": "7"}, {"role": "assistant", "content": "b"}], "functions": [{"name": "f"}]})",
     ChatFormat::kMessages, "user:a|assistant:|tool:7|assistant:b", 0},

    // Pairs in the forms of LLaMA-Factory, OpenAI, axolotl and ms-swift.
    {R"({"conversations": [{"from": "human", "value": "a"}],
        "chosen": {"from": "gpt", "value": "c"},
        "rejected": {"from": "gpt", "value": "r"}})",
     ChatFormat::kPreference, "user:a|assistant:c", 1},
    {R"({"input": {"messages": [{"role": "user", "content": "a"}], "tools": [],
        "parallel_tool_calls": true}, "preferred_output": [{"role": "assistant", "content": "c"}],
        "non_preferred_output": [{"role": "assistant", "content": "r"}]})",
     ChatFormat::kPreference, "user:a|assistant:c", 1},
    {R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}],
        "chosen": {"role": "assistant", "content": "c"},
        "rejected": {"role": "assistant", "content": "r"}})",
     ChatFormat::kPreference, "system:s|user:a|assistant:c", 2},
    {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}],
        "rejected_response": "r"})",
     ChatFormat::kPreference, "user:a|assistant:b|user:c|assistant:d", 3},
    {R"({"system": "s", "input": "q", "chosen": "c", "rejected": "r", "rating": [1, 2]})",
     ChatFormat::kPreference, "system:s|user:q|assistant:c", 2},
    {R"({"prompt": "p", "chosen_response": "c", "rejected_response": "r"})",
     ChatFormat::kPreference, "user:p|assistant:c", 1},
    {R"({"instruction": "i", "input": "", "chosen": "c", "rejected": "r",
        "history": [["a", "b"]]})",
     ChatFormat::kPreference, "user:a|assistant:b|user:i|assistant:c", 3},
    {R"({"prompt": "p", "messages": [{"role": "user", "content": "p"}, {"role": "assistant",
        "content": "c"}], "chosen": [{"role": "user", "content": "p"}, {"role": "assistant",
        "content": "c"}], "rejected": [{"role": "user", "content": "p"}, {"role": "assistant",
        "content": "r"}], "score_chosen": 8.0})",
     ChatFormat::kPreference, "user:p|assistant:c", 1},
};

struct BadRow {
    const char* line;
    const char* reason;
};
constexpr BadRow kBadRows[] = {
    {"", "the line is empty"},
    {"{", "invalid JSON at byte"},
    {"{'text': 'a'}", "invalid JSON at byte 2: a single quote: names and texts need double quotes"},
    {"{\"text\": 'a'}", "a single quote: names and texts need double quotes"},
    {"{\"text\": \"a\", \"continue_final_message\": True}",
     "the words of JSON are true, false and null"},
    {"[1]", "the line is not a JSON object"},
    {"{}", "the row has no keys"},
    {R"({"a": 1, "b": 2})", "the row has the keys a, b, but needs one of"},
    {R"({"Question": "a", "Answer": "b"})", "; did you mean `question`? Write the keys in lower"},
    {R"({"version": 1, "data": [{"text": "a"}]})", "list of rows: jq -c '.\"data\"[]' FILE"},
    {R"({"id": 1, "body": {"messages": []}})",
     "; if the field `body` contains the row, take it out: jq -c '.\"body\"' FILE"},
    {R"({"input_ids": [1], "labels": [1]})", "; dslaunch makes the tokens itself: give the text"},
    {R"({"messages": "[{'role': 'user'}]"})", "found a string that contains one; in Python"},
    {"{\"text\": \"caf\xe9\"}", "invalid JSON at byte 14: it is not UTF-8; convert a Latin-1 file"},
    {R"({"system": "s", "chat": "USER: a ASSISTANT: b"})",
     "the row has the keys system, chat, but"},
    {R"({"input_ids": [1, 2], "labels": [1, 2]})", "the row has the keys input_ids, labels, but"},
    {R"({"text": ""})", "text: the text is empty"},
    {R"({"text": 5})", "text: expected a string"},
    {R"({"messages": []})", "messages: the list contains no message"},
    {R"({"messages": [5]})", "messages[0]: expected an object"},
    {R"({"messages": [{"content": "x"}]})", "messages[0].role: expected a string"},
    {R"({"messages": [{"role": "user"}]})", "messages[0].content: expected a string"},
    {R"({"messages": [{"role": "user", "content": 5}]})",
     "messages[0].content: expected a string or a list"},
    {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
     "messages[0].content[0].type: \"image\" is not text"},
    {R"({"messages": [{"role": "user", "content": "x"}]})", "no message is the assistant's"},
    {R"({"conversations": [{"from": "alien", "value": "x"}]})",
     "conversations[0].from: \"alien\" is not a known speaker"},
    {R"({"instruction": "i", "output": 1})", "output: expected a string"},
    {R"({"instruction": "i", "input": "x", "output": null})", "output is null"},
    {R"({"messages": null, "id": 1})", "messages is null"},
    {R"({"question": null, "answer": "a"})", "question is null"},
    {R"({"prompt": "p", "chosen": "a", "rejected": null})", "rejected is null"},
    {R"({"text": null})", "text is null"},
    {R"({"prompt": "p", "completion": []})", "prompt and completion: both must be strings"},
    {R"({"chosen": "a", "rejected": []})", "chosen and rejected: both must be strings"},
    {R"({"prompt": "p", "chosen": "", "rejected": "r"})", "chosen: the answer is empty"},
    {R"({"prompt": "p", "chosen": "c", "rejected": " \n"})", "rejected: the answer is empty"},
    {R"({"chosen": "H: a A:", "rejected": "H: a A: no"})", "chosen: the answer is empty"},
    {R"({"prompt": "p", "chosen": [{"role": "user", "content": "c"}],
        "rejected": [{"role": "assistant", "content": "r"}]})",
     "chosen: no message is the assistant's"},
    {R"({"prompt": "p", "chosen": "c", "rejected": 5})",
     "chosen and rejected: both must be strings"},
    {R"({"question": 5, "chosen": "c", "rejected": "r"})", "question: expected a string"},
    {R"({"chosen": "c"})", "the row has the keys chosen, but needs one of"},
    {R"({"query": "q", "response": "r", "tools": 5})", "tools: expected a list"},
    {R"({"text": "\ud83d"})", "invalid JSON at byte"},

    // Columns that would change what is learned.
    {R"({"prompt": "p", "completion": "c", "label": false})", "label: in a row of the form"},
    {R"({"prompt": [{"role": "user", "content": "p"}], "completion": [{"role": "assistant",
        "content": "c"}], "label": true})",
     "label: in a row of the form `completion`, this column says whether an answer is good, which "
     "only KTO"},
    {R"({"instruction": "i", "output": "o", "kto_tag": true})", "kto_tag: in a row of the form"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "label": 0})", "label: in a row"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "images": ["a.png"]})",
     "images: in a row of the form `messages`, this column cannot be learned"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "weight": 0.5})", "weight: in a row"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "weight": "0"})", "weight: in a row"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "train": false})", "train: in a row"},
    {R"({"prompt": "a", "completion": "b", "loss": "False"})", "loss: in a row"},
    {R"({"text": "a", "trainable": 0})", "trainable: in a row"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "loss_mask": [1]})",
     "loss_mask: in a row of the form `messages`, this column has no effect"},
    {R"({"messages": [{"role": "assistant", "content": "c"}], "history": [["a", "b"]]})",
     "history: in a row of the form `messages`, this column would not be learned"},
    {R"({"question": "q", "context": "c", "answer": "a"})",
     "context: in a row of the form `query`"},
    {R"({"question": "q", "choices": ["x", "y"], "answer": "a"})", "choices: in a row of the form"},
    {R"({"question": "q", "reasoning": "first that", "answer": "a"})",
     "reasoning: in a row of the"},
    {R"({"text": "t", "role": "prompter", "parent_id": null})",
     "role: in a row of the form `text`"},
    {R"({"text": "t", "system": "s"})",
     "system: in a row of the form `text`, this column would not be learned"},
    {R"({"text": "t", "tools": [{"name": "f"}]})", "tools: in a row of the form `text`"},
    {R"({"text": "t", "question": "q", "answer": "a"})", "text: in a row of the form `query`"},
    {R"({"output": "a", "response": "b", "prompt": "p"})",
     "output and response: their values differ, but"},
    {R"({"question": "a", "prompt": "b", "answer": "p"})",
     "prompt and question: their values differ, but"},
    {R"({"system": "s", "messages": [{"role": "system", "content": "other"},
        {"role": "assistant", "content": "c"}]})",
     "system: the messages begin with another system message"},
    {R"({"messages": [{"role": "user", "content": "a"}], "response": "b"})",
     "no message is the assistant's"},
    {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}], "response": "d"})",
     "response: in a row of the form `messages`"},
    {R"({"prompt": "other", "chosen": [{"role": "user", "content": "p"}, {"role": "assistant",
        "content": "c"}], "rejected": [{"role": "user", "content": "p"}, {"role": "assistant",
        "content": "r"}]})",
     "but these messages do not contain the prompt"},
    {R"({"prompt": "p", "chosen": "c", "rejected": "r", "ref_chosen_logps": -1.5})",
     "ref_chosen_logps: in a row of the form `preference`"},
    {R"({"instruction": "i", "output": "o", "history": ["a", "b"]})",
     "history: expected a list of [question, answer]"},

    // A message's own setting for learning.
    {R"({"messages": [{"role": "assistant", "content": "c", "weight": 0.5}]})",
     "messages[0].weight: expected 0 or 1"},
    {R"({"messages": [{"role": "assistant", "content": "c", "train": "no"}]})",
     "messages[0].train: expected 0 or 1"},
    {R"({"messages": [{"role": "user", "content": "c", "train": true},
        {"role": "assistant", "content": "c"}]})",
     "messages[0].train: a message of \"user\" is marked as learned"},
    {R"({"messages": [{"role": "assistant", "content": "c", "train_detail": []}]})",
     "messages[0].train_detail: a message can only be learned as a whole"},
    {R"({"messages": [{"role": "assistant", "content": "c", "loss": false}]})",
     "the row: all answers are marked as not learned"},
    {R"({"conversations": [{"from": "function_call", "value": "f"}]})",
     "conversations[0].value: expected tool calls as JSON"},
    {R"({"conversations": [{"from": "function_call", "value": "{\"name\": \"f\"}"}]})",
     "conversations[0].value: expected a tool call"},
};

}  // namespace

TEST_CASE("a row's form is found and its conversation read") {
    for (const GoodRow& row : kGoodRows) {
        INFO(row.line);
        const ParsedRow line = parse_row(row.line);
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
        const ParsedRow line = parse_row(row.line);
        CHECK(!line.sample);
        CHECK_THAT(line.reason, Catch::Contains(row.reason));
    }
}

TEST_CASE("a message says whether it is learned") {
    const ParsedRow line = parse_row(
        R"({"conversations": [{"from": "human", "value": "a", "weight": 0.0},
            {"from": "gpt", "value": "b", "weight": 0.0}, {"from": "human", "value": "a"},
            {"from": "gpt", "value": "b", "weight": 1.0}, {"from": "gpt", "value": "b",
            "trainable": false}, {"from": "gpt", "value": "b", "loss": true, "weight": null},
            {"from": "gpt", "value": "b", "loss_mask": 0}]})");
    INFO(line.reason);
    REQUIRE(line.sample);
    std::vector<bool> learned;
    for (const jinja::Value& message : line.sample->messages)
        learned.push_back(is_learned(message));
    CHECK(learned == std::vector<bool>{false, false, true, true, false, true, false});
}

TEST_CASE("text that goes on is told from a question and its answer") {
    for (const auto& [row, is_continued] : std::vector<std::pair<const char*, bool>>{
             {R"({"prompt": "p", "completion": "c"})", true},
             {R"({"prompt": "p", "chosen": "c", "rejected": "r"})", true},
             {R"({"chosen": "p c", "rejected": "p r"})", true},
             {R"({"system": "s", "prompt": "p", "completion": "c"})", false},
             {R"({"prompt": "p", "completion": "c", "tools": [{"name": "f"}]})", false},
             {R"({"prompt": "p", "response": "c"})", false},
             {R"({"question": "p", "chosen": "c", "rejected": "r"})", false},
             {R"({"prompt": [{"role": "user", "content": "p"}], "chosen": "c", "rejected": "r"})",
              false}}) {
        INFO(row);
        const ParsedRow line = parse_row(row);
        REQUIRE(line.sample);
        CHECK(line.sample->is_continued == is_continued);
    }
}

TEST_CASE("columns that are not read are named, but for copies of what is read") {
    const auto unread = [](const char* row) { return parse_row(row).unread; };
    using Names = std::vector<std::string>;
    CHECK(unread(R"({"text": "t", "id": 5, "label": 1, "empty": ""})") == Names{"id", "label"});
    CHECK(unread(R"({"prompt": "a", "messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}], "source": "x"})") == Names{"source"});
    CHECK(unread(R"({"query": "q", "response": "r", "original_question": "o"})") ==
          Names{"original_question"});
}

TEST_CASE("tools come as a list or as its JSON, with the template's own variables") {
    for (const char* tools : {R"([{"name": "t"}])", R"("[{\"name\": \"t\"}]")"}) {
        const ParsedRow line = parse_row(
            std::string(R"({"query": "q", "response": "r", "chat_template_kwargs": {"x": 1}, )") +
            "\"tools\": " + tools + "}");
        REQUIRE(line.sample);
        CHECK(line.sample->tools.items().size() == 1);
        CHECK(line.sample->more.size() == 1);
    }
    CHECK(parse_row(R"({"query": "q", "response": "r", "tools": ""})")
              .sample->tools.is(jinja::ValueKind::kNone));
    const ParsedRow line = parse_row(R"({"query": "q", "response": "r",
                                              "chat_template_kwargs": {"tools": []}})");
    CHECK(!line.sample);
    CHECK_THAT(line.reason, Catch::Contains("`tools` is set by dslaunch"));
}

TEST_CASE("an answer that says nothing is noticed") {
    const std::pair<const char*, bool> cases[] = {
        {R"({"instruction": "i", "output": ""})", true},
        {R"({"prompt": "p", "completion": "  "})", true},
        {R"({"messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "content": ""}]})",
         true},
        {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "",
            "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}]})",
         false},
        {R"({"instruction": "", "output": "o"})", false},
        {R"({"text": "t"})", false}};
    for (const auto& [line, is_empty] : cases) {
        CAPTURE(line);
        const ParsedRow parsed = parse_row(line);
        REQUIRE(parsed.sample);
        CHECK(parsed.sample->has_empty_answer == is_empty);
    }
}

TEST_CASE("a call of a tool of another form becomes OpenAI's") {
    for (const char* row : {R"({"conversations": [{"from": "function_call", "value":
             "[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]"}]})",
                            R"({"messages": [{"role": "assistant", "content": null,
             "function_call": {"name": "f", "arguments": {"x": 1}}}]})"}) {
        const ParsedRow line = parse_row(row);
        INFO(line.reason);
        REQUIRE(line.sample);
        jinja::Meter meter{jinja::Limits{}};
        const jinja::Value expected = jinja::value_of_json(
            R"([{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])");
        const jinja::Value* calls =
            jinja::find_key(line.sample->messages.front().dict(), "tool_calls");
        REQUIRE(calls != nullptr);
        CHECK(jinja::are_equal(meter, *calls, expected));
    }
}
