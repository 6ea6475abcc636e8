// libFuzzer entry: reads the input as a row of training text. The row is refused with a reason that
// can be shown, or each of its texts is the text that the template renders, and has answers.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "fuzz/error_checks.h"
#include "text/chat/segments.h"

using namespace dslaunch::text;

namespace {

const ChatTemplate& chat_template(size_t which) {
    static const std::array<ChatTemplate, 3> all = {
        ChatTemplate::parse("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
                            "{{ m.tool_calls | tojson if m.tool_calls }}<|end|>{% endfor %}"
                            "{% if add_generation_prompt %}<|assistant|>{% endif %}",
                            "turns"),
        ChatTemplate::parse(
            "{% for m in messages %}{% set text = m.content %}{% if not loop.last %}"
            "{% set text = text.split('</think>')[-1] %}{% endif %}"
            "[{{ m.role }}]{{ text.strip() }};{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}",
            "thinking"),
        ChatTemplate::parse("{% for m in messages %}{% if m.role == 'assistant' %}"
                            "{% generation %}{{ m.content }};{% endgeneration %}"
                            "{% else %}{{ m.content }}:{% endif %}{% endfor %}",
                            "marked"),
    };
    return all[which];
}

void check_segments(const ChatSample& sample, const ChatTemplate* chat,
                    const SegmentOptions& options) {
    using namespace dslaunch;
    const SegmentedText text = render_segments(sample, chat, options);
    if (!text.ok()) {
        DSL_CHECK(text.answers.empty(), "a refused row has answers");
        fuzz::check_shown(text.reason);
        return;
    }
    DSL_CHECK(!text.answers.empty(), "a row without an answer");
    size_t end = 0;
    for (const TextRange& answer : text.answers) {
        DSL_CHECK(end <= answer.begin_bytes && answer.begin_bytes < answer.end_bytes,
                  "answers out of order");
        end = answer.end_bytes;
    }
    DSL_CHECK(end <= text.text.size(), "an answer behind the text");
    if (chat == nullptr || sample.format == ChatFormat::kText) return;
    ChatInput input;
    input.messages = jinja::new_list(
        nullptr, options.side == PreferenceSide::kRejected ? sample.rejected : sample.messages);
    input.tools = sample.tools;
    input.documents = sample.documents;
    input.more = sample.more;
    DSL_CHECK(chat->apply(input, options.rendering).text == text.text, "it is another text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t length) {
    using namespace dslaunch;
    const std::string_view line(reinterpret_cast<const char*>(data), length);
    const ParsedRow row = parse_row(line);
    if (!row.sample) {
        fuzz::check_shown(row.reason);
        return 0;
    }
    SegmentOptions options;
    options.rendering.limits.steps_max = 100'000;
    options.rendering.limits.memory_bytes_max = size_t{1} << 20;
    options.rendering.now.emplace();
    options.rendering.now->tm_mday = 1;
    check_segments(*row.sample, nullptr, options);
    for (size_t which = 0; which < 3; ++which)
        check_segments(*row.sample, &chat_template(which), options);
    if (row.sample->format != ChatFormat::kPreference) return 0;
    options.side = PreferenceSide::kRejected;
    check_segments(*row.sample, nullptr, options);
    check_segments(*row.sample, &chat_template(0), options);
    return 0;
}
