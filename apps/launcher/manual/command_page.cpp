#include "launcher/manual/command_page.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "launch/process/spawn.h"
#include "launcher/options/option_table.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kSubcommandsTitle = "subcommands";
// dsworker loads LibTorch, which a slow disk may delay.
constexpr std::chrono::seconds kPageTimeMax{60};

// Returns commands with an option, such as `ps --devices`, that have a help page of their own
// although they are not subcommands.
const std::vector<CommandPath>& further_forms() {
    static const std::vector<CommandPath> forms = {{"ps", "--devices"}, {"stop", "--pid"}};
    return forms;
}

}  // namespace

HelpPage read_help_json(std::string_view text) {
    HelpPage page;
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        json.at("usage").get_to(page.usage);
        json.at("does").get_to(page.does);
        for (const nlohmann::json& group : json.at("groups")) {
            HelpGroup read{group.at("title").get<std::string>(), {}};
            for (const nlohmann::json& entry : group.at("entries"))
                read.entries.push_back({entry.at("head").get<std::string>(),
                                        entry.at("text").get<std::string>(),
                                        entry.at("choices").get<std::vector<std::string>>()});
            page.groups.push_back(std::move(read));
        }
        json.at("examples").get_to(page.examples);
        json.at("exit_codes").get_to(page.exit_codes);
        json.at("docs").get_to(page.docs);
    } catch (const nlohmann::json::exception& error) {
        fail(ExitCode::kInternal, "a help page cannot be read: {}", error.what());
    }
    return page;
}

HelpPage page_of(const CommandPath& path) {
    ::setenv(kHelpFormVariable, "json", 1);
    std::vector<std::string> command = {"/proc/self/exe"};  // exists even if the program's file was
                                                            // replaced
    command.insert(command.end(), path.begin(), path.end());
    command.emplace_back("--help");
    const std::string printed = launch::program_output(command, kPageTimeMax);
    // Warnings of the system's loader may stand before the page.
    const std::string_view lines = trim(printed);
    const std::string_view page = lines.substr(lines.rfind('\n') + 1);
    if (!page.starts_with("{\"usage\""))
        fail(ExitCode::kSetup, "dslaunch {} has no help page: {}", join(path, " "),
             lines.empty() ? "the command did not answer" : printable_lines(lines, 0));
    return read_help_json(page);
}

HelpPage accepted_page_of(const CommandPath& path) {
    if (path != CommandPath{"run"}) return page_of(path);
    HelpPage page = page_of({"run", "--all"});
    std::erase_if(page.groups, [](const HelpGroup& group) {
        return group.title == group_title(Group::kRefused);
    });
    return page;
}

std::span<const HelpEntry> entries_of(const HelpPage& page, std::string_view title) {
    const auto group = std::ranges::find(page.groups, title, &HelpGroup::title);
    if (group == page.groups.end()) return {};
    return group->entries;
}

OptionHead parse_head(const std::string& head) {
    OptionHead parsed;
    const size_t optional = head.find("[=");
    const size_t last = head.rfind(", -");
    const size_t blank = head.find(' ', last == head.npos ? 0 : last + 2);
    const bool is_optional = optional != head.npos && (blank == head.npos || optional < blank);
    const size_t end = std::min(is_optional ? optional : blank, head.size());
    for (const std::string& name : split(head.substr(0, end), ','))
        parsed.names.emplace_back(trim(name));
    parsed.value_is_optional = is_optional;
    if (is_optional) {
        parsed.value_name = head.substr(optional + 2);
        parsed.value_name.pop_back();  // the closing bracket
    } else if (blank != head.npos) {
        parsed.value_name = head.substr(blank + 1);
    }
    return parsed;
}

std::vector<CommandPath> paths_below(const CommandPath& path, const PageSource& pages) {
    std::vector<CommandPath> paths = {path};
    for (const CommandPath& form : further_forms())
        if (!path.empty() && form != path && form.front() == path.front() && path.size() == 1)
            paths.push_back(form);
    // The page must live as long as its entries, which are views of it.
    const HelpPage page = pages(path);
    for (const HelpEntry& entry : entries_of(page, kSubcommandsTitle)) {
        CommandPath inner = path;
        inner.push_back(entry.head);
        for (CommandPath& below : paths_below(inner, pages)) paths.push_back(std::move(below));
    }
    return paths;
}

}  // namespace dslaunch::launcher
