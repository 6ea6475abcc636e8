#include "text/chat/segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/chat/chat_messages.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/members.h"

namespace dslaunch::text {
namespace {

using jinja::Value;
using jinja::ValueKind;
using Ranges = std::vector<TextRange>;

// The tags around a block of reasoning. A block is empty if only blanks are between them.
struct BlockEnds {
    std::string_view open, close;
};
constexpr std::array<BlockEnds, 9> kReasoningBlocks = {{
    {"<think>", "</think>"},
    {"<thinking>", "</thinking>"},
    {"[THINK]", "[/THINK]"},
    {"<reasoning>", "</reasoning>"},
    {"<seed:think>", "</seed:think>"},
    {"<longcat_think>", "</longcat_think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|channel>thought", "<channel|>"},
    {"\u25c1think\u25b7", "\u25c1/think\u25b7"},
}};

std::string_view without_blanks_before(std::string_view text) {
    return jinja::strip_blanks(text, {.left = true, .right = false});
}

// Returns the length of the empty block of reasoning at the beginning of TEXT, including the blanks
// around it. If BEFORE ends with the opening tag, TEXT may begin with the rest of the block.
// Returns 0 if there is no such block.
size_t empty_block_bytes(std::string_view before, std::string_view text) {
    const std::string_view begun = without_blanks_before(text);
    const std::string_view opened = jinja::strip_blanks(before, {.left = false, .right = true});
    for (const BlockEnds& block : kReasoningBlocks) {
        std::string_view rest = begun;
        if (begun.starts_with(block.open)) {
            rest = without_blanks_before(begun.substr(block.open.size()));
        } else if (!opened.ends_with(block.open)) {
            continue;
        }
        if (!rest.starts_with(block.close)) continue;
        return text.size() - without_blanks_before(rest.substr(block.close.size())).size();
    }
    return 0;
}

// Returns the length of the longest common prefix of TURN and OPENING. OPENING is the prompt for an
// answer. The prefix does not end inside a tag such as `<think>`.
size_t shared_beginning(std::string_view opening, std::string_view turn) {
    const auto length =
        static_cast<size_t>(std::ranges::mismatch(opening, turn).in1 - opening.begin());
    const size_t tag = opening.substr(0, length).find_last_of("<[");
    const bool is_cut = length < opening.size() && tag != std::string_view::npos &&
                        opening.substr(tag, length - tag).find_first_of(">]") == std::string::npos;
    return is_cut ? tag : length;
}

// Returns the length of the longest suffix of BEFORE that TEXT begins with.
size_t overlap(std::string_view before, std::string_view text) {
    for (size_t length = std::min(before.size(), text.size()); length > 0; --length)
        if (before.ends_with(text.substr(0, length))) return length;
    return 0;
}

// Returns Alpaca's prompt as in Stanford's data; the answer begins on the next line.
std::string alpaca_prompt(const ChatSample& sample) {
    if (sample.input.empty()) {
        return fmt::format(
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\n{}\n\n### Response:\n",
            sample.instruction);
    }
    return fmt::format(
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{}\n\n### Input:\n{}\n\n### Response:\n",
        sample.instruction, sample.input);
}

SegmentedText refused(std::string reason) {
    SegmentedText result;
    result.reason = std::move(reason);
    return result;
}

SegmentedText plain_form(const ChatSample& sample, const jinja::Values& messages) {
    SegmentedText result;
    if (sample.format == ChatFormat::kText) {
        result.text = sample.text;
        result.answers = {{0, sample.text.size()}};
        return result;
    }
    if (!sample.is_plain) {
        return refused(fmt::format(
            "a row of the form `{}` needs the model's chat template: put a chat_template.jinja "
            "into the model's folder (the instruct model has one), or give rows of prompt and "
            "completion",
            chat_format_name(sample.format)));
    }
    if (!sample.tools.is(ValueKind::kNone) || !sample.documents.is(ValueKind::kNone))
        return refused("tools and documents need the model's chat template");
    const bool is_alpaca = sample.format == ChatFormat::kInstruction;
    const std::string answer = content_text(messages.back());
    std::string prompt =
        is_alpaca ? alpaca_prompt(sample) : content_text(messages[messages.size() - 2]);
    if (role_of(messages.front()) == "system")
        prompt = content_text(messages.front()) + "\n\n" + prompt;
    if (answer.empty()) return refused("the answer is empty, so there is nothing to learn");
    result.prompt_bytes = prompt.size();
    result.text = prompt + answer;
    result.answers = {{prompt.size(), result.text.size()}};
    return result;
}

class AnswerFinder {
  public:
    AnswerFinder(const ChatSample& sample, const ChatTemplate& chat, const jinja::Values& messages,
                 const TemplateOptions& rendering)
        : sample_(sample), chat_(chat), messages_(messages), rendering_(rendering) {}

    SegmentedText run() {
        try {
            whole_ = rendered(messages_, messages_.size(), false);
        } catch (const Error& error) {
            return refused(error.what());
        }
        const bool has_marks = chat_.marks_answers() && !whole_.has_lost_mark;
        const bool compares_all = sample_.format == ChatFormat::kPreference;
        std::optional<Ranges> ranges;
        if (has_marks && !compares_all) ranges = marked();
        result_.has_marks = ranges.has_value();
        if (!ranges) ranges = by_message();
        if (!ranges && has_marks) ranges = marked();
        if (!ranges) return refused(reason_);
        for (const TextRange& range : *ranges)
            if (range.begin_bytes < range.end_bytes) result_.answers.push_back(range);
        if (result_.answers.empty()) return refused("the template writes no answer into the text");
        if (result_.prompt_bytes != result_.answers.front().begin_bytes)
            result_.prompt_bytes = std::nullopt;
        result_.text = std::move(whole_.text);
        return std::move(result_);
    }

  private:
    // Renders the first COUNT of MESSAGES. Throws Error.
    [[nodiscard]] RenderedChat rendered(const jinja::Values& messages, size_t count,
                                        bool add_generation_prompt, bool may_think = true) const {
        ChatInput input;
        input.messages =
            jinja::plain_list(jinja::Values(messages.begin(), messages.begin() + long(count)));
        input.tools = sample_.tools;
        input.documents = sample_.documents;
        input.add_generation_prompt = add_generation_prompt;
        input.more = sample_.more;
        if (!may_think) input.more.emplace_back("enable_thinking", Value::boolean(false));
        return chat_.apply(input, rendering_);
    }
    // Renders the first COUNT messages. Returns nothing if the template refuses them.
    [[nodiscard]] std::optional<RenderedChat> try_rendered(size_t count, bool add_generation_prompt,
                                                           bool may_think = true) const {
        if (count == 0) return std::nullopt;
        try {
            return rendered(messages_, count, add_generation_prompt, may_think);
        } catch (const Error&) {
            return std::nullopt;
        }
    }

    [[nodiscard]] bool is_answer(size_t index) const {
        return index >= sample_.prompt_messages && is_said(index) && is_learned(messages_[index]);
    }
    [[nodiscard]] bool is_said(size_t index) const {
        return role_of(messages_[index]) == "assistant";
    }

    [[nodiscard]] std::string_view part(TextRange range) const {
        return std::string_view(whole_.text)
            .substr(range.begin_bytes, range.end_bytes - range.begin_bytes);
    }

    static bool is_within(const TextRange& inner, const TextRange& outer) {
        return outer.begin_bytes <= inner.begin_bytes && inner.end_bytes <= outer.end_bytes;
    }

    // Returns the range that the template's loops print for message INDEX and for no other message.
    // Returns nothing if there is no such range, or more than one.
    [[nodiscard]] static std::optional<TextRange> turn_of(const RenderedChat& chat, size_t index) {
        std::optional<TextRange> turn;
        for (const MessageRange& one : chat.by_message) {
            if (one.message != index) continue;
            const bool is_inner =
                std::ranges::any_of(chat.by_message, [&](const MessageRange& other) {
                    return other.message != index && is_within(one.range, other.range) &&
                           one.range != other.range;
                });
            if (is_inner || (turn && is_within(one.range, *turn))) continue;
            if (turn && !is_within(*turn, one.range)) return std::nullopt;
            turn = one.range;
        }
        return turn;
    }

    // Returns the message whose turn contains MARK.
    [[nodiscard]] std::optional<size_t> owner_of(const TextRange& mark) const {
        for (const MessageRange& one : whole_.by_message)
            if (is_within(mark, one.range)) return one.message;
        return std::nullopt;
    }

    // Returns the marked ranges that are learned. Returns nothing if two marks overlap, or if it is
    // not known whether a marked range is learned.
    [[nodiscard]] std::optional<Ranges> marked() const {
        const auto is_known_answer = [&](const Value& message) {
            return role_of(message) != "assistant" || is_learned(message);
        };
        const bool learns_all = std::ranges::all_of(messages_, is_known_answer);
        const bool has_said =
            std::any_of(messages_.begin(), messages_.begin() + long(sample_.prompt_messages),
                        [](const Value& message) { return role_of(message) == "assistant"; });
        const auto prompt = has_said ? beginning(sample_.prompt_messages, false) : size_t{0};
        Ranges ranges;
        size_t end = 0;
        for (const TextRange& mark : whole_.generated) {
            if (mark.begin_bytes < end) return std::nullopt;
            end = mark.end_bytes;
            const auto owner = owner_of(mark);
            if (!owner && (!learns_all || !prompt)) return std::nullopt;
            const bool counts =
                owner ? *owner >= sample_.prompt_messages && is_learned(messages_[*owner])
                      : mark.begin_bytes >= *prompt;
            if (counts) ranges.push_back(mark);
        }
        return ranges;
    }

    // Renders only the first COUNT messages. Returns the length of the rendered text if the text of
    // the whole conversation begins with it, otherwise nothing.
    [[nodiscard]] std::optional<size_t> beginning(size_t count, bool add_generation_prompt) const {
        if (count == messages_.size()) return whole_.text.size();
        const auto chat = try_rendered(count, add_generation_prompt);
        if (!chat || !whole_.text.starts_with(chat->text)) return std::nullopt;
        return chat->text.size();
    }

    // Finds the answers one by one. Returns their ranges.
    [[nodiscard]] std::optional<Ranges> by_message() {
        Ranges ranges;
        size_t last_end = 0;
        for (size_t i = 0; i < messages_.size(); ++i) {
            if (!is_answer(i)) continue;
            // Before the first message, a template may write text that belongs to no message.
            std::optional<TextRange> range = i == 0 ? by_content(i) : std::nullopt;
            if (!range) range = by_turn(i);
            if (!range) range = by_prefix(i);
            if (!range || range->begin_bytes < last_end) range = by_content(i);
            if (!range || range->begin_bytes < last_end) {
                reason_ = fmt::format(
                    "{}: cannot find the answer of message {} in the rendered text, because the "
                    "template renders it differently when more messages follow, and changes its "
                    "content; mark answers with {{% generation %}} in the template",
                    chat_.name(), i + 1);
                return std::nullopt;
            }
            last_end = range->end_bytes;
            range->begin_bytes += own_block_bytes(i, *range);
            add_without_others(ranges, *range, i);
        }
        return ranges;
    }

    // Adds RANGE, which belongs to message INDEX. Leaves out the parts of RANGE that other messages
    // have.
    void add_without_others(Ranges& ranges, TextRange range, size_t index) const {
        Ranges others;
        for (const MessageRange& one : whole_.by_message)
            if (one.message != index && is_within(one.range, range) && one.range != range)
                others.push_back(one.range);
        std::ranges::sort(others, {}, &TextRange::begin_bytes);
        for (const TextRange& other : others) {
            if (other.begin_bytes > range.begin_bytes)
                ranges.push_back({range.begin_bytes, other.begin_bytes});
            range.begin_bytes = std::max(range.begin_bytes, other.end_bytes);
        }
        ranges.push_back(range);
    }

    [[nodiscard]] std::optional<TextRange> by_turn(size_t index) {
        const std::optional<TextRange> turn = turn_of(whole_, index);
        if (!turn) return std::nullopt;
        const auto asked = try_rendered(index, /*add_generation_prompt=*/true);
        TextRange range = *turn;
        if (asked && whole_.text.starts_with(asked->text) &&
            asked->text.size() >= turn->begin_bytes && asked->text.size() <= turn->end_bytes) {
            range.begin_bytes = asked->text.size();
            if (!result_.prompt_bytes) result_.prompt_bytes = range.begin_bytes;
        } else {
            const auto header = header_bytes(index, asked, part(*turn));
            if (!header) return std::nullopt;
            range.begin_bytes += *header;
        }
        // A template may write text after the last message, for example an end token. If the same
        // text follows the turn, it belongs to the turn.
        const auto alone = index + 1 == messages_.size()
                               ? std::optional(whole_)
                               : try_rendered(index + 1, /*add_generation_prompt=*/false);
        const auto end = alone ? turn_of(*alone, index) : std::nullopt;
        const std::string_view tail =
            end ? std::string_view(alone->text).substr(end->end_bytes) : std::string_view();
        if (std::string_view(whole_.text).substr(range.end_bytes).starts_with(tail))
            range.end_bytes += tail.size();
        return range;
    }

    // Finds the prompt for an answer at the beginning of TURN, and returns the length of this
    // prompt. TURN is the text of message INDEX. The text ASKED ends with the same prompt. Returns
    // nothing if the length is not known.
    [[nodiscard]] std::optional<size_t> header_bytes(size_t index,
                                                     const std::optional<RenderedChat>& asked,
                                                     std::string_view turn) const {
        if (!asked) {
            // Takes the prompt from another conversation, with only one message of a user.
            try {
                const jinja::Values other = {message_of("user", "a")};
                const std::string before = rendered(other, 1, false).text;
                const std::string text = rendered(other, 1, true).text;
                if (!text.starts_with(before)) return std::nullopt;
                return shared_beginning(std::string_view(text).substr(before.size()), turn);
            } catch (const Error&) {
                return std::nullopt;
            }
        }
        const std::string_view text = asked->text;
        const auto before = try_rendered(index, /*add_generation_prompt=*/false);
        size_t opens = 0;
        for (const MessageRange& one : asked->by_message)
            opens = std::max(opens, one.range.end_bytes);
        if (before && text.starts_with(before->text)) opens = before->text.size();
        const size_t shared = shared_beginning(text.substr(opens), turn);
        return shared > 0 ? shared : overlap(text, turn);
    }

    // Returns the length of the empty block of reasoning at the beginning of RANGE, the answer of
    // message INDEX. Templates write such a block in the prompt for an answer without thinking. If
    // the block begins before RANGE, counts only its part in RANGE. Returns 0 if there is no such
    // block.
    [[nodiscard]] size_t own_block_bytes(size_t index, TextRange range) const {
        const std::string_view answer = part(range);
        const size_t block = empty_block_bytes(part({0, range.begin_bytes}), answer);
        if (block == 0 || empty_block_bytes("", content_text(messages_[index])) > 0) return 0;
        const auto hasty = try_rendered(index, /*add_generation_prompt=*/true, /*may_think=*/false);
        if (!hasty) return block;
        const size_t end = hasty->text.size();
        if (whole_.text.starts_with(hasty->text) && end > range.begin_bytes &&
            end <= range.end_bytes)
            return end - range.begin_bytes;
        const auto asked = try_rendered(index, /*add_generation_prompt=*/true);
        if (asked && hasty->text.starts_with(asked->text)) {
            const std::string_view more = std::string_view(hasty->text).substr(asked->text.size());
            if (empty_block_bytes("", more) > 0 && answer.starts_with(more)) return more.size();
        }
        return block;
    }

    [[nodiscard]] std::optional<TextRange> by_prefix(size_t index) {
        const auto begin = index == 0 ? std::nullopt : beginning(index, true);
        const auto end = begin ? beginning(index + 1, false) : std::nullopt;
        if (!end || *end <= *begin) return std::nullopt;
        const std::string content = content_text(messages_[index]);
        // Checks that the range contains the answer, because the prompt for a different answer may
        // be a prefix of the text by chance.
        if (part({*begin, *end}).find(final_part(content)) == std::string_view::npos)
            return std::nullopt;
        if (!result_.prompt_bytes) result_.prompt_bytes = *begin;
        return TextRange{*begin, *end};
    }

    // Returns an answer without the reasoning before it and without blanks at its ends.
    [[nodiscard]] static std::string_view final_part(std::string_view content) {
        constexpr std::string_view kReasoningEnd = "</think>";
        const size_t at = content.rfind(kReasoningEnd);
        if (at != std::string_view::npos) content.remove_prefix(at + kReasoningEnd.size());
        return jinja::strip_blanks(content);
    }

    // Returns the range of the content of message INDEX in the text. To find it, renders a
    // different content; returns nothing if anything else in the text changes too.
    [[nodiscard]] std::optional<TextRange> by_content(size_t index) const {
        constexpr std::string_view kOther = "\uE0F1another answer\uE0F2";
        const std::string* content = jinja::text_member(messages_[index], "content");
        if (content == nullptr) return std::nullopt;
        const std::string& said = *content;
        const std::string_view part = final_part(said);
        if (part.empty() || whole_.text.find(kOther) != std::string::npos) return std::nullopt;
        const size_t part_begin = size_t(part.data() - said.data());
        std::string changed = said;
        changed.replace(part_begin, part.size(), kOther);
        jinja::Values messages = messages_;
        messages[index] =
            jinja::with_member(messages_[index], "content", jinja::plain_text(changed));
        std::string text;
        try {
            text = rendered(messages, messages.size(), false).text;
        } catch (const Error&) {
            return std::nullopt;
        }
        const size_t at = text.find(kOther);
        if (at == std::string::npos) return std::nullopt;
        if (text.replace(at, kOther.size(), part) != whole_.text) return std::nullopt;
        const std::string_view lead = jinja::strip_blanks(
            std::string_view(said).substr(0, part_begin), {.left = true, .right = false});
        const bool has_lead = std::string_view(whole_.text).substr(0, at).ends_with(lead);
        return TextRange{has_lead ? at - lead.size() : at, turn_end(index, part, at + part.size())};
    }

    // Returns the end of the turn of message INDEX. PART is the last part of the message's content,
    // and ends at offset END of the text. If a template writes text after a last message, and this
    // text follows END, it belongs to the turn.
    [[nodiscard]] size_t turn_end(size_t index, std::string_view part, size_t end) const {
        std::string alone;
        try {
            alone = rendered(messages_, index + 1, false).text;
        } catch (const Error&) {
            return end;
        }
        const size_t at = alone.rfind(part);
        if (at == std::string::npos) return end;
        const std::string_view tail = std::string_view(alone).substr(at + part.size());
        return std::string_view(whole_.text).substr(end).starts_with(tail) ? end + tail.size()
                                                                           : end;
    }

    const ChatSample& sample_;
    const ChatTemplate& chat_;
    const jinja::Values& messages_;
    const TemplateOptions& rendering_;
    RenderedChat whole_;
    SegmentedText result_;
    std::string reason_;
};

}  // namespace

const jinja::Values& messages_of_side(const ChatSample& sample, PreferenceSide side) {
    const bool is_rejected =
        sample.format == ChatFormat::kPreference && side == PreferenceSide::kRejected;
    return is_rejected ? sample.rejected : sample.messages;
}

SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options) {
    const jinja::Values& messages = messages_of_side(sample, options.side);
    if (chat == nullptr || sample.format == ChatFormat::kText) return plain_form(sample, messages);
    return AnswerFinder(sample, *chat, messages, options.rendering).run();
}

}  // namespace dslaunch::text
