#include "launcher/manual/man_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/screen.h"
#include "base/text.h"
#include "launcher/manual/man_facts.h"

namespace dslaunch::launcher {
namespace {

// Returns TEXT in a form that troff prints without changes. A `-` becomes a real minus sign, so
// that commands can be copied from the page.
std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '\\') {
            result += "\\e";
        } else if (c == '-') {
            result += "\\-";
        } else if (c == '\'' || c == '`' || c == '^' || c == '~') {
            // troff would print typographic signs for these characters.
            result += c == '\'' ? "\\(aq" : c == '`' ? "\\(ga" : c == '^' ? "\\(ha" : "\\(ti";
        } else {
            result += c;
        }
    }
    return result;
}

// Returns TEXT as one line of the page; at the beginning of a line, a dot would be a request.
std::string troff_line(std::string_view text) {
    const std::string line = escaped(text);
    return (line.starts_with('.') ? "\\&" : "") + line + "\n";
}

// Returns TEXT, a paragraph, in lines of moderate length.
std::string troff_lines(std::string_view text) {
    constexpr size_t kWidth = 72;  // counted before escaping
    std::string lines;
    for (const std::string& line : split(wrapped(text, {.width = kWidth}), '\n'))
        lines += troff_line(line);
    return lines;
}

std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

// Returns HEAD with its fixed words in bold and names of values in italics.
std::string head_text(const std::string& head) {
    if (!head.starts_with('-')) return "\\fI" + escaped(head) + "\\fR";
    const OptionHead parts = parse_head(head);
    std::vector<std::string> names;
    for (const std::string& name : parts.names) names.push_back("\\fB" + escaped(name) + "\\fR");
    std::string text = join(names, ", ");
    if (parts.value_is_optional) return text + "[=\\fI" + escaped(parts.value_name) + "\\fR]";
    if (!parts.value_name.empty()) text += " \\fI" + escaped(parts.value_name) + "\\fR";
    return text;
}

std::string section(std::string_view title) {
    return fmt::format(".SH {}\n", title);
}

std::string entry(const std::string& head, std::string_view text) {
    return ".TP\n" + head + "\n" + troff_lines(text);
}

// Returns the usage, with fixed words in bold and the rest plain.
std::string synopsis(const HelpPage& help) {
    std::string text = section("SYNOPSIS");
    for (size_t i = 0; i < help.usage.size(); ++i) {
        std::vector<std::string> fixed, open;
        for (std::string& word : split(help.usage[i], ' ')) {
            const bool is_fixed = open.empty() && !word.empty() &&
                                  (std::islower(static_cast<unsigned char>(word.front())) != 0);
            (is_fixed ? fixed : open).push_back(std::move(word));
        }
        if (i > 0) text += ".br\n";
        text += "\\fB" + escaped(join(fixed, " ")) + "\\fR " + troff_lines(join(open, " "));
    }
    return text;
}

std::string description(const HelpPage& help) {
    std::string text = section("DESCRIPTION");
    const std::vector<std::string> paragraphs = split(help.does, '\n');
    for (size_t i = 0; i < paragraphs.size(); ++i)
        text += (i > 0 ? ".PP\n" : "") + troff_lines(paragraphs[i]);
    return text;
}

// Returns true for the groups that are sections of their own and not kinds of options.
bool is_own_section(const HelpGroup& group) {
    return group.title == "arguments" || group.title == "subcommands";
}

std::string options(const HelpPage& help) {
    std::string text;
    std::string kinds;
    for (const HelpGroup& group : help.groups) {
        if (group.entries.empty()) continue;
        std::string entries;
        for (const HelpEntry& one : group.entries)
            entries += entry(group.title == "subcommands" ? "\\fB" + escaped(one.head) + "\\fR"
                                                          : head_text(one.head),
                             one.text);
        if (is_own_section(group)) {
            text += section(upper(group.title)) + entries;
        } else {
            // The subtitle `options` is left out, because it would repeat the title of the section.
            std::string title = group.title;
            title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
            kinds += (title == "Options" ? "" : ".SS " + escaped(title) + "\n") + entries;
        }
    }
    return text + (kinds.empty() ? "" : section("OPTIONS") + kinds);
}

std::string exit_status(const HelpPage& help) {
    std::string text = section("EXIT STATUS");
    if (!help.exit_codes.empty()) {
        std::string own = help.exit_codes;
        own.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(own[0])));
        text += troff_lines(own) + ".PP\nAll commands use this list:\n";
    }
    for (const ManCode& row : exit_codes())
        text +=
            entry(fmt::format("\\fB{} {}\\fR", int(row.code), escaped(exit_code_name(row.code))),
                  row.text);
    return text;
}

std::string examples(const HelpPage& help) {
    if (help.examples.empty()) return "";
    std::string text = section("EXAMPLES") + ".EX\n";
    for (const std::string& example : help.examples)
        for (const std::string& line : split(example, '\n')) text += troff_line(line);
    return text + ".EE\n";
}

std::string facts(std::string_view title, std::span<const ManFact> rows, const CommandPath& path) {
    std::string text;
    for (const ManFact& fact : rows)
        if (concerns(fact, path.empty() ? "" : path.front()))
            text += entry("\\fB" + escaped(fact.name) + "\\fR", fact.text);
    return text.empty() ? "" : section(title) + text;
}

std::string see_also(const ManPage& page) {
    std::vector<std::string> names;
    for (const CommandPath& path : page.also) names.push_back(man_name(path));
    std::string text = section("SEE ALSO");
    for (size_t i = 0; i < names.size(); ++i)
        text += fmt::format(".BR {} (1){}\n", escaped(names[i]), i + 1 < names.size() ? "," : "");
    if (page.help.docs.empty()) return text;
    return text + (names.empty() ? "" : ".PP\n") +
           troff_lines("In the documentation: " + page.help.docs);
}

}  // namespace

std::string man_name(const CommandPath& path) {
    std::string name = "dslaunch";
    for (const std::string& word : path)
        name += "-" + word.substr(std::min(word.find_first_not_of('-'), word.size()));
    return name;
}

std::string man_text(const ManPage& page) {
    const std::string name = man_name(page.path);
    return fmt::format(".TH {} 1 {} \"dslaunch {}\" \"dslaunch\"\n.nh\n.ad l\n",
                       escaped(upper(name)), page.date, DSL_VERSION) +
           section("NAME") +
           fmt::format("{} \\- {}", escaped(name), troff_line(brief_of(page.help))) +
           synopsis(page.help) + description(page.help) + options(page.help) +
           exit_status(page.help) + examples(page.help) + facts("FILES", usual_files(), page.path) +
           facts("ENVIRONMENT", variables(), page.path) + see_also(page);
}

}  // namespace dslaunch::launcher
