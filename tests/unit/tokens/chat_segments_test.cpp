// A sample's text in segments: what is learned and what is only read.
#include "support/catch.h"
#include "tokens/chat/segments.h"

using namespace dslaunch;
using namespace dslaunch::tokens;

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
constexpr const char* kChanging =
    "{% for m in messages %}{{ loop.length }}{{ m.content | upper }}{% endfor %}";

struct SegmentRow {
    const char* line;
    const char* source;    // nullptr: without a template
    const char* segments;  // answers in [ ]
    AnswersBy by;
};
constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]})";
constexpr const char* kReasoning =
    R"({"messages": [{"role": "user", "content": "b"},
        {"role": "assistant", "content": "<think>r</think>b"}, {"role": "user", "content": "c"},
        {"role": "assistant", "content": "<think>s</think>d"}]})";
constexpr SegmentRow kSegmentRows[] = {
    {R"({"text": "all of it"})", kTurns, "[all of it]", AnswersBy::kPlainForm},
    {R"({"prompt": "p ", "completion": "c"})", nullptr, "p [c]", AnswersBy::kPlainForm},
    {R"({"query": "q", "response": "r"})", nullptr, "q[r]", AnswersBy::kPlainForm},
    {R"({"instruction": "i", "input": "x", "output": "o"})", nullptr,
     "Below is an instruction that describes a task, paired with an input that provides further "
     "context. Write a response that appropriately completes the request.\n\n### "
     "Instruction:\ni\n\n### Input:\nx\n\n### Response:\n[o]",
     AnswersBy::kPlainForm},
    {R"({"instruction": "i", "output": "o"})", nullptr,
     "Below is an instruction that describes a task. Write a response that appropriately completes "
     "the request.\n\n### Instruction:\ni\n\n### Response:\n[o]",
     AnswersBy::kPlainForm},
    {kTwoTurns, kTurns,
     "<|user|>a<|end|>\n<|assistant|>[b<|end|>\n]<|user|>a<|end|>\n<|assistant|>[a<|end|>\n]",
     AnswersBy::kPrefixes},
    {kTwoTurns, kMarked,
     "<|user|>a<|end|><|assistant|>[b<|end|>]<|user|>a<|end|><|assistant|>[a<|end|>]",
     AnswersBy::kMarks},
    {kReasoning, kThinking,
     "<|user|>b<|end|>\n<|assistant|>[b<|end|>\n]<|user|>c<|end|>\n<|assistant|>"
     "[<think>s</think>d<|end|>\n]",
     AnswersBy::kContents},
    {R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})",
     kTurns, "<|user|>a<|end|>\n<|assistant|>b<|end|>\n<|user|>c<|end|>\n<|assistant|>[d<|end|>\n]",
     AnswersBy::kPrefixes},
    {R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})",
     kMarked, "<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>[d<|end|>]",
     AnswersBy::kMarks},
};

std::string shown(const SegmentedText& text) {
    std::string all;
    for (const TextSegment& segment : text.segments)
        all += segment.is_answer ? "[" + segment.text + "]" : segment.text;
    return all;
}

SegmentedText segments_of(const char* line, const char* source,
                          const SegmentOptions& options = {}) {
    const ChatLine row = parse_chat_line(line);
    INFO(row.reason);
    REQUIRE(row.sample);
    if (source == nullptr) return render_segments(*row.sample, nullptr, options);
    const ChatTemplate chat = ChatTemplate::parse(source, "t");
    return render_segments(*row.sample, &chat, options);
}

}  // namespace

TEST_CASE("answers are told from what is only read") {
    for (const SegmentRow& row : kSegmentRows) {
        INFO(row.line << "\n" << (row.source == nullptr ? "" : row.source));
        const SegmentedText text = segments_of(row.line, row.source);
        CHECK(text.reason == "");
        CHECK(shown(text) == row.segments);
        CHECK(text.by == row.by);
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
               Catch::Contains("where the answer of message 2 stands in the text is not known"));
    CHECK_THAT(segments_of(kTwoTurns, "{{ raise_exception('no') }}").reason,
               Catch::Contains("the template refuses it: no"));
    CHECK_THAT(segments_of(R"({"query": "q", "response": "r", "tools": [{}]})", nullptr).reason,
               Catch::Contains("tools and documents need"));
}
