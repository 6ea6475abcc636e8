// A sample's text: the parts that are learned, and the parts that are only read.
#include "support/catch.h"
#include "text/chat/segments.h"

using namespace dslaunch;
using namespace dslaunch::text;

namespace {

constexpr const char* kTurns =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
// Drops the reasoning of all but the last answer.
constexpr const char* kThinking =
    "{% for m in messages %}{% set text = m.content %}"
    "{% if not loop.last %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "<|{{ m.role }}|>{{ text.strip() }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
constexpr const char* kMarked =
    "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>"
    "{% endif %}{% endfor %}";
// A loop over the messages' numbers.
constexpr const char* kIndexed =
    "{% for i in range(messages | length) %}{% set m = messages[i] %}<|{{ m.role }}|>"
    "{{ m.content if i + 1 == messages | length else m.content.split('</think>')[-1] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
// The loop does not show the messages, so they are found by their contents.
constexpr const char* kUntold =
    "{% for i in range(messages | length) %}<|{{ messages[i].role }}|>{{ messages[i].content "
    "if i + 1 == messages | length else messages[i].content.split('</think>')[-1] }}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
constexpr const char* kChanging =
    "{% for i in range(messages | length) %}{{ messages | length }}"
    "{{ messages[i].content | upper }}{% endfor %}";
// The text ends differently from a turn, as in Phi's; the last turn ends differently, as in
// gpt-oss's.
constexpr const char* kEnded =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}<eos>{% endif %}";
constexpr const char* kReturned =
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}"
    "{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
// Reasoning, or an empty block for it, only in turns after the last question, as in Qwen3's.
constexpr const char* kLastThinks =
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>"
    "{% if loop.index0 > ns.last and (loop.last or m.reasoning_content) %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls %}<call>{{ c.function.name }}</call>{% endfor %}<|end|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}";
// A tool's result ends where the answer begins, as in DeepSeek's.
constexpr const char* kOutputs =
    "{% set ns = namespace(is_tool=false) %}{% for m in messages %}"
    "{% if m.role == 'tool' %}<out>{{ m.content }}{% set ns.is_tool = true %}"
    "{% elif m.role == 'user' %}<User>{{ m.content }}"
    "{% elif m.tool_calls %}<Assistant><calls>{{ m.tool_calls[0].function.name }}<end>"
    "{% elif ns.is_tool %}</out>{{ m.content }}<end>{% set ns.is_tool = false %}"
    "{% else %}<Assistant>{{ m.content }}<end>{% endif %}{% endfor %}"
    "{% if ns.is_tool %}</out>{% elif add_generation_prompt %}<Assistant><think>\n{% endif %}";
// The assistant's turn contains the results of the tools that it called.
constexpr const char* kNested =
    "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<a>{{ m.content }}{% for c in m.tool_calls %}"
    "<call>{{ c.function.name }}{% endfor %}{% for t in messages[loop.index:] %}"
    "{% if t.role == 'tool' %}<out>{{ t.content }}</out>{% endif %}{% endfor %}<end>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}";

struct SegmentRow {
    const char* line;
    const char* source;    // nullptr: without a template
    const char* segments;  // answers in [ ]
    bool has_marks = false;
};
constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]})";
constexpr const char* kReasoning =
    R"({"messages": [{"role": "user", "content": "b"},
        {"role": "assistant", "content": "<think>r</think>b"}, {"role": "user", "content": "c"},
        {"role": "assistant", "content": "<think>s</think>d"}]})";
constexpr SegmentRow kSegmentRows[] = {
    {R"({"text": "all of it"})", kTurns, "[all of it]"},
    {R"({"prompt": "p ", "completion": "c"})", nullptr, "p [c]"},
    {R"({"query": "q", "response": "r"})", nullptr, "q[r]"},
    {R"({"instruction": "i", "input": "x", "output": "o"})", nullptr,
     "Below is an instruction that describes a task, paired with an input that provides further "
     "context. Write a response that appropriately completes the request.\n\n### "
     "Instruction:\ni\n\n### Input:\nx\n\n### Response:\n[o]"},
    {R"({"instruction": "i", "output": "o"})", nullptr,
     "Below is an instruction that describes a task. Write a response that appropriately completes "
     "the request.\n\n### Instruction:\ni\n\n### Response:\n[o]"},
    {kTwoTurns, kTurns,
     "<|user|>a<|end|>\n<|assistant|>[b<|end|>\n]<|user|>a<|end|>\n<|assistant|>[a<|end|>\n]"},
    {kTwoTurns, kMarked,
     "<|user|>a<|end|><|assistant|>[b<|end|>]<|user|>a<|end|><|assistant|>[a<|end|>]", true},
    {kReasoning, kThinking,
     "<|user|>b<|end|>\n<|assistant|>[b<|end|>\n]<|user|>c<|end|>\n<|assistant|>"
     "[<think>s</think>d<|end|>\n]"},
    {R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})",
     kTurns,
     "<|user|>a<|end|>\n<|assistant|>b<|end|>\n<|user|>c<|end|>\n<|assistant|>[d<|end|>\n]"},
    {R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})",
     kMarked, "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>[d<|end|>]", true},
};

constexpr const char* kCalls =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "",
        "reasoning_content": "r", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "7"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "",
        "tool_calls": [{"function": {"name": "g"}}]}, {"role": "tool", "content": "8"},
        {"role": "assistant", "content": "c"}]})";
constexpr const char* kCallOnly =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null,
        "tool_calls": [{"function": {"name": "f"}}]}]})";
constexpr const char* kOwnBlock =
    R"({"messages": [{"role": "user", "content": "q"},
        {"role": "assistant", "content": "<think></think>b"}]})";
constexpr SegmentRow kFormRows[] = {
    {kTwoTurns, kEnded,
     "<|user|>a<|end|><|assistant|>[b<|end|>]<|user|>a<|end|><|assistant|>[a<|end|><eos>]"},
    {kTwoTurns, kReturned,
     "<|start|>user<|message|>a<|end|><|start|>assistant[<|message|>b<|end|>]"
     "<|start|>user<|message|>a<|end|><|start|>assistant[<|message|>a<|return|>]"},
    {kCalls, kLastThinks,
     "<|user|>q<|end|><|assistant|>[<call>f</call><|end|>]<|tool|>7<|end|>"
     "<|assistant|>[b<|end|>]<|user|>q<|end|><|assistant|>[<call>g</call><|end|>]<|tool|>8<|end|>"
     "<|assistant|><think>\n\n</think>\n\n[c<|end|>]"},
    {kCallOnly, kLastThinks,
     "<|user|>q<|end|><|assistant|><think>\n\n</think>\n\n[<call>f</call><|end|>]"},
    {kOwnBlock, kTurns, "<|user|>q<|end|>\n<|assistant|>[<think></think>b<|end|>\n]"},
    {kCalls, kOutputs,
     "<User>q<Assistant>[<calls>f<end>]<out>7</out>[b<end>]<User>q<Assistant>[<calls>g<end>]"
     "<out>8</out>[c<end>]"},
    {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b",
        "tool_calls": [{"function": {"name": "f"}}]}, {"role": "tool", "content": "7"}]})",
     kNested, "<u>q<a>[b<call>f]<out>7</out>[<end>]"},
    {R"({"conversations": [{"from": "gpt", "value": "b"}, {"from": "human", "value": "q"},
        {"from": "gpt", "value": "c"}]})",
     kTurns, "<|assistant|>[b<|end|>\n]<|user|>q<|end|>\n<|assistant|>[c<|end|>\n]"},
    {kReasoning, kUntold,
     "<|user|>b<|end|>\n<|assistant|>[b<|end|>\n]<|user|>c<|end|>\n<|assistant|>"
     "[<think>s</think>d<|end|>\n]"},
    // The model's prompt ends with the beginning of a block.
    {kTwoTurns,
     "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}<think></think>"
     "{% endif %}{{ m.content }}<|end|>{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|><think>{% endif %}",
     "<|user|>a<|end|><|assistant|><think></think>[b<|end|>]<|user|>a<|end|>"
     "<|assistant|><think></think>[a<|end|>]"},
    {kReasoning, kIndexed,
     "<|user|>b<|end|>\n<|assistant|>[b<|end|>\n]<|user|>c<|end|>\n<|assistant|>"
     "[<think>s</think>d<|end|>\n]"},
};

// An answer that must not be learned is only read, however answers are found.
constexpr const char* kUnlearned =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b",
        "weight": 0}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "c",
        "train": true}]})";
constexpr SegmentRow kUnlearnedRows[] = {
    {kUnlearned, kTurns,
     "<|user|>a<|end|>\n<|assistant|>b<|end|>\n<|user|>a<|end|>\n<|assistant|>[c<|end|>\n]"},
    {kUnlearned, kMarked,
     "<|user|>a<|end|><|assistant|>b<|end|><|user|>a<|end|><|assistant|>"
     "[c<|end|>]",
     true},
    {kUnlearned, kThinking,
     "<|user|>a<|end|>\n<|assistant|>b<|end|>\n<|user|>a<|end|>\n<|assistant|>[c<|end|>\n]"},
};

std::string shown(const SegmentedText& text) {
    std::string all = text.text;
    for (size_t i = text.answers.size(); i-- > 0;) {
        all.insert(text.answers[i].end_bytes, "]");
        all.insert(text.answers[i].begin_bytes, "[");
    }
    return all;
}

SegmentedText segments_of(const char* line, const char* source,
                          const SegmentOptions& options = {}) {
    const ParsedRow row = parse_row(line);
    INFO(row.reason);
    REQUIRE(row.sample);
    if (source == nullptr) return render_segments(*row.sample, nullptr, options);
    const ChatTemplate chat = ChatTemplate::parse(source, "t");
    return render_segments(*row.sample, &chat, options);
}

}  // namespace

TEST_CASE("answers are told from what is only read") {
    std::vector<SegmentRow> rows(std::begin(kSegmentRows), std::end(kSegmentRows));
    rows.insert(rows.end(), std::begin(kUnlearnedRows), std::end(kUnlearnedRows));
    rows.insert(rows.end(), std::begin(kFormRows), std::end(kFormRows));
    for (const SegmentRow& row : rows) {
        INFO(row.line << "\n" << (row.source == nullptr ? "" : row.source));
        const SegmentedText text = segments_of(row.line, row.source);
        CHECK(text.reason == "");
        CHECK(shown(text) == row.segments);
        CHECK(text.has_marks == row.has_marks);
    }
}

TEST_CASE("both sides of a preference have their text") {
    const char* line = R"({"prompt": "p", "chosen": "c", "rejected": "r"})";
    SegmentOptions options;
    CHECK(shown(segments_of(line, nullptr, options)) == "p[c]");
    options.side = PreferenceSide::kRejected;
    CHECK(shown(segments_of(line, nullptr, options)) == "p[r]");
    CHECK(shown(segments_of(line, kTurns, options)) ==
          "<|user|>p<|end|>\n<|assistant|>[r<|end|>\n]");
}

TEST_CASE("a text whose answers have no known place is refused with the reason") {
    CHECK_THAT(segments_of(kTwoTurns, nullptr).reason,
               Catch::Contains("needs the model's chat template"));
    CHECK_THAT(segments_of(kTwoTurns, kChanging).reason,
               Catch::Contains("cannot find the answer of message 2 in the rendered text"));
    CHECK_THAT(segments_of(kTwoTurns, "{{ raise_exception('no') }}").reason,
               Catch::Contains("the template raised an error: no"));
    CHECK_THAT(segments_of(R"({"query": "q", "response": "r", "tools": [{}]})", nullptr).reason,
               Catch::Contains("tools and documents need"));
}
