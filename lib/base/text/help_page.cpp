#include "base/text/help_page.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kTextColumnMax = 28;
constexpr std::string_view kIndent = "  ";

// Appends WORDS, wrapped, to TEXT. All lines of WORDS begin at COLUMN. REQUIRES: the last line of
// TEXT ends at COLUMN.
void append_wrapped(std::string& text, std::string_view words, size_t column) {
    text += wrapped(words, {.width = kWidth, .first = column, .indent = column}) + '\n';
}

// Returns the column at which the descriptions of PAGE's options begin. The column is to the right
// of the longest option, but at most kTextColumnMax.
size_t text_column(const HelpPage& page) {
    size_t column = 0;
    for (const HelpGroup& group : page.groups)
        for (const HelpEntry& entry : group.entries)
            column = std::max(column, 2 * kIndent.size() + columns_of(entry.head));
    return std::min(column, kTextColumnMax);
}

void append_entry(std::string& text, const HelpEntry& entry, size_t column) {
    text += kIndent;
    text += entry.head;
    const size_t head = kIndent.size() + columns_of(entry.head);
    if (head + kIndent.size() <= column) {
        text.append(column - head, ' ');
    } else {
        text += '\n' + std::string(column, ' ');
    }
    append_wrapped(text, entry.text, column);
}

void append_labelled(std::string& text, std::string_view label, std::string_view words) {
    if (words.empty()) return;
    text += '\n';
    text += label;
    append_wrapped(text, words, label.size());
}

void write_list(JsonWriter& json, std::string_view name, const std::vector<std::string>& texts) {
    json.key(name).begin_array();
    for (const std::string& text : texts) json.value(text);
    json.end_array();
}

}  // namespace

std::string help_text(const HelpPage& page) {
    constexpr std::string_view kUsage = "usage: ";
    std::string text;
    for (const std::string& usage : page.usage) {
        text += text.empty() ? kUsage : std::string(kUsage.size(), ' ');
        append_wrapped(text, usage, kUsage.size());
    }
    if (!page.does.empty()) text += '\n';
    for (const std::string& paragraph : split(page.does, '\n')) append_wrapped(text, paragraph, 0);
    const size_t column = text_column(page);
    for (const HelpGroup& group : page.groups) {
        if (group.entries.empty()) continue;
        text += '\n' + group.title + ":\n";
        for (const HelpEntry& entry : group.entries) append_entry(text, entry, column);
    }
    if (!page.examples.empty())
        text += page.examples.size() == 1 ? "\nexample:\n" : "\nexamples:\n";
    for (const std::string& example : page.examples)
        for (const std::string& line : split(example, '\n')) text += "  " + line + '\n';
    append_labelled(text, "exit codes: ", page.exit_codes);
    append_labelled(text, "more: ", page.docs);
    return text;
}

std::string help_json(const HelpPage& page) {
    JsonWriter json;
    json.begin_object();
    write_list(json, "usage", page.usage);
    json.field("does", page.does).key("groups").begin_array();
    for (const HelpGroup& group : page.groups) {
        json.begin_object().field("title", group.title).key("entries").begin_array();
        for (const HelpEntry& entry : group.entries) {
            json.begin_object().field("head", entry.head).field("text", entry.text);
            write_list(json, "choices", entry.choices);
            json.end_object();
        }
        json.end_array().end_object();
    }
    json.end_array();
    write_list(json, "examples", page.examples);
    json.field("exit_codes", page.exit_codes).field("docs", page.docs).end_object();
    return json.text();
}

void print_help(const HelpPage& page) {
    const char* const form = std::getenv(kHelpFormVariable);
    const bool is_json = form != nullptr && std::string_view(form) == "json";
    std::fputs((is_json ? help_json(page) + "\n" : help_text(page)).c_str(), stdout);
}

std::string brief_of(const HelpPage& page) {
    std::string brief = page.does.substr(0, page.does.find('\n'));
    brief = brief.substr(0, brief.find(". "));
    if (brief.ends_with('.')) brief.pop_back();
    if (!brief.empty())
        brief.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(brief.front())));
    return brief;
}

std::string option_head(std::string_view names, std::string_view value_name) {
    std::vector<std::string> heads;
    for (const std::string& name : split(names, ',')) {
        const bool is_short = name.size() == 1;
        heads.insert(is_short ? heads.begin() : heads.end(), (is_short ? "-" : "--") + name);
    }
    std::string head = join(heads, ", ");
    if (value_name.starts_with('[')) return head + "[=" + std::string(value_name.substr(1));
    return value_name.empty() ? head : head + " " + std::string(value_name);
}

}  // namespace dslaunch
