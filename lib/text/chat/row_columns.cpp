#include "text/chat/row_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "text/chat/chat_messages.h"
#include "text/chat_template/values/members.h"

namespace dslaunch::text {
namespace {

using jinja::Value;
using jinja::ValueKind;

// The cases in which a column changes what the row teaches, if the column has a value but is not
// read.
enum class Counts {
    kNever,
    kAlways,
    kUnlessSaid,    // if its text is not in the row's other texts
    kAsAnswer,      // like kUnlessSaid, but never beside a pair or an answered conversation
    kBesideAnswer,  // like kUnlessSaid, but only beside a question and its answer
    kBesideText,    // if the row is a text
    kBesidePair,    // if the row is a pair of answers
    kAsLabel,       // if it rates an answer as true or false
    kAsWeight,      // if it is not 1
    kAsFlag,        // if it is false or 0
};

// Columns that share a condition. If the condition holds for one of them, the row is refused for
// the reason `why`. The names are separated by blanks.
struct ColumnGroup {
    Counts counts;
    std::string_view why;
    std::string_view names;
};

constexpr std::string_view kPart =
    "this column would not be learned; move its text into a column that is read, or remove the "
    "column";
constexpr std::string_view kMedia =
    "this column cannot be learned, because only text can be trained";
constexpr std::string_view kTokens =
    "this column is not read, because dslaunch makes the tokens itself; give only the text";
constexpr std::string_view kLabel =
    "this column says whether an answer is good, which only KTO uses, and KTO is not supported; "
    "keep only the rows with good answers and remove the column, or make pairs of chosen and "
    "rejected";
constexpr std::string_view kWeight =
    "this column has no effect, because all rows have the same weight; remove it";
constexpr std::string_view kUnlearned =
    "this column says that the row is not learned; remove the row";
constexpr std::string_view kMask =
    "this column has no effect; mark each message that is not learned with `\"train\": false` "
    "instead";
constexpr std::string_view kReference =
    "this column is not read; remove it, because `dslaunch eval --write-reference` computes the "
    "reference";
constexpr std::string_view kOneMessage =
    "this column says that the text is one message of a conversation; give the whole conversation "
    "as one row with `messages`";

constexpr ColumnGroup kGroups[] = {
    {Counts::kUnlessSaid, kPart,
     "chosen rejected chosen_response rejected_response preferred_output "
     "non_preferred_output messages conversations conversation instruction prompt "
     "question query problem input inputs context text system system_prompt history"},
    {Counts::kAsAnswer, kPart, "output response completion answer solution targets"},
    {Counts::kAlways, kPart, "tools functions documents"},
    {Counts::kNever, kPart, "chat_template_kwargs"},
    {Counts::kBesideAnswer, kPart,
     "choices options reasoning reasoning_content thinking chain_of_thought cot"},
    {Counts::kAlways, kMedia, "image images video videos audio audios"},
    {Counts::kAlways, kTokens, "input_ids completion_mask assistant_masks"},
    {Counts::kAsLabel, kLabel, "label labels kto_tag"},
    {Counts::kAsWeight, kWeight, "weight sample_weight"},
    {Counts::kAsFlag, kUnlearned, "train training trainable loss"},
    {Counts::kAlways, kMask, "loss_mask"},
    {Counts::kBesidePair, kReference,
     "ref_chosen_logps ref_rejected_logps reference_chosen_logps "
     "reference_rejected_logps"},
    {Counts::kBesideText, kOneMessage, "role from parent_id"},
};

using Columns = std::map<std::string, const ColumnGroup*, std::less<>>;
const Columns& columns() {
    static const Columns table = [] {
        Columns made;
        for (const ColumnGroup& group : kGroups)
            for (const std::string& name : split(group.names, ' ')) made[name] = &group;
        return made;
    }();
    return table;
}

bool is_nothing(const Value& value) {
    if (value.is(ValueKind::kNone)) return true;
    if (value.is(ValueKind::kList)) return value.items().empty();
    if (value.is(ValueKind::kDict)) return value.dict().entries.empty();
    if (!value.is(ValueKind::kText)) return false;
    const std::string_view text = trim(value.text());
    return text.empty() || text == "[]";
}

// The texts of a row, used to check whether its other columns say anything new.
class Said {
  public:
    explicit Said(const ChatSample& sample) {
        const bool is_instruction = sample.format == ChatFormat::kInstruction;
        for (const std::string* text : {&sample.text, &sample.instruction, &sample.input})
            add(pieces_, *text);
        for (const jinja::Values* side : {&sample.messages, &sample.rejected})
            for (const Value& message : *side) {
                add(texts_, content_text(message));
                // In an instruction row, the user's message consists of the instruction and its
                // input. pieces_ already has both texts.
                if (!is_instruction || role_of(message) != "user")
                    add(pieces_, content_text(message));
            }
        texts_.insert(texts_.end(), pieces_.begin(), pieces_.end());
    }

    // Returns true if everything that VALUE says is in the row's texts.
    [[nodiscard]] bool holds(const Value& value) const {
        if (value.is(ValueKind::kText)) return holds_text(trim(value.text()));
        if (value.is(ValueKind::kList))
            return std::ranges::all_of(value.items(), [&](const Value& one) { return holds(one); });
        if (!value.is(ValueKind::kDict)) return true;
        bool has_text = false;
        for (const auto& [key, held] : value.dict().entries) {
            if (std::ranges::count(kTextKeys, key.text()) == 0) continue;
            if (!holds(held)) return false;
            has_text = true;
        }
        return has_text;
    }

  private:
    // The keys of a message or a turn whose values are strings.
    static constexpr std::array<std::string_view, 7> kTextKeys = {
        "content", "value", "text", "input", "output", "human", "assistant"};

    static void add(std::vector<std::string>& texts, const std::string& text) {
        if (!trim(text).empty()) texts.emplace_back(trim(text));
    }

    // Returns true if one of the row's texts contains TEXT, which may be a final answer. Also
    // returns true if TEXT contains all of the row's texts, as a rendered chat does.
    [[nodiscard]] bool holds_text(std::string_view text) const {
        const auto holds = [&](const std::string& said) {
            return said.find(text) != std::string::npos;
        };
        const auto is_held = [&](const std::string& piece) {
            return text.find(piece) != std::string_view::npos;
        };
        return std::ranges::any_of(texts_, holds) || std::ranges::all_of(pieces_, is_held);
    }

    std::vector<std::string> texts_, pieces_;
};

bool is_label(const Value& value) {
    if (value.is(ValueKind::kText)) {
        const std::string word = lower(trim(value.text()));
        return word == "true" || word == "false";
    }
    if (value.is(ValueKind::kList)) return std::ranges::any_of(value.items(), is_label);
    return value.is_number() && (value.as_double() == 0 || value.as_double() == 1);
}

// Returns VALUE as a number; a string may contain the number, and false is 0. Returns nothing if
// VALUE is not a number.
std::optional<double> number_in(const Value& value) {
    if (value.is_number()) return value.as_double();
    if (!value.is(ValueKind::kText)) return std::nullopt;
    const std::string word = lower(trim(value.text()));
    if (word == "true" || word == "false") return word == "true" ? 1 : 0;
    return parse_double(word);
}

// Returns true if COLUMN with VALUE would change what SAMPLE teaches.
bool changes(const ColumnGroup& column, const Value& value, const ChatSample& sample,
             const Said& said) {
    const bool is_text = sample.format == ChatFormat::kText;
    const bool is_pair = sample.format == ChatFormat::kPreference;
    const bool is_chat =
        sample.format == ChatFormat::kMessages || sample.format == ChatFormat::kConversations;
    switch (column.counts) {
        case Counts::kNever:
            return false;
        case Counts::kAlways:
            return true;
        case Counts::kUnlessSaid:
            return !said.holds(value);
        case Counts::kAsAnswer:
            if (is_pair || (is_chat && role_of(sample.messages.back()) == "assistant"))
                return false;
            return !said.holds(value);
        case Counts::kBesideAnswer: {
            // A single word is only a name or a label.
            const bool is_word = value.is(ValueKind::kText) &&
                                 trim(value.text()).find_first_of(" \n") == std::string::npos;
            return !is_text && !is_pair && !is_chat && !is_word && !said.holds(value);
        }
        case Counts::kBesideText:
            return is_text;
        case Counts::kBesidePair:
            return is_pair;
        case Counts::kAsLabel:
            return !is_text && !is_pair && is_label(value);
        case Counts::kAsWeight:
            return number_in(value).value_or(1) != 1;
        case Counts::kAsFlag:
            return number_in(value).value_or(1) == 0;
    }
    return true;
}

}  // namespace

std::span<const std::string_view> row_columns() {
    static const std::vector<std::string_view> names = [] {
        std::vector<std::string_view> all;
        for (const auto& [name, group] : columns()) all.push_back(name);
        return all;
    }();
    return names;
}

const Value* RowColumns::find(std::string_view name) const {
    DSL_CHECK(columns().contains(name), "{} is not a column of a row", name);
    const Value* value = jinja::member(row_, name);
    return value == nullptr || value->is(ValueKind::kNone) ? nullptr : value;
}

bool RowColumns::has_more_than_nothing(std::string_view name) const {
    const Value* value = find(name);
    return value != nullptr && !is_nothing(*value);
}

std::vector<std::string_view> RowColumns::present(std::span<const std::string_view> names) const {
    std::vector<std::string_view> found;
    for (const std::string_view name : names)
        if (has(name)) found.push_back(name);
    return found;
}

const Value& RowColumns::read(std::string_view name) {
    const Value* value = find(name);
    if (value == nullptr) throw RowFault(fmt::format("{}: the column is missing", name));
    count_as_read(name);
    return *value;
}

const std::string& RowColumns::text(std::string_view name) {
    const Value& value = read(name);
    if (!value.is(ValueKind::kText)) throw RowFault(fmt::format("{}: expected a string", name));
    return value.text();
}

std::vector<std::string> RowColumns::unread(const ChatSample& sample) const {
    std::optional<Said> said;
    std::vector<std::string> names;
    for (const auto& [key, value] : row_.dict().entries) {
        const std::string& name = key.text();
        if (read_.contains(name) || is_nothing(value)) continue;
        const auto column = columns().find(name);
        if (column == columns().end()) {
            names.push_back(name);
            continue;
        }
        if (!said) said.emplace(sample);
        if (changes(*column->second, value, sample, *said))
            throw RowFault(fmt::format("{}: in a row of the form `{}`, {}", name,
                                       chat_format_name(sample.format), column->second->why));
        const bool is_copy = !value.is_number() && said->holds(value);
        if (!is_copy) names.push_back(name);
    }
    return names;
}

}  // namespace dslaunch::text
