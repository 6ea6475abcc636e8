// `dslaunch links [DIR [NAME…]]`: makes and removes links to dslaunch with the names of DeepSpeed's
// programs, so that existing commands and scripts still work.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/text_table.h"
#include "base/text/words.h"
#include "launcher/links/deepspeed_names.h"
#include "launcher/options/machine.h"
#include "launcher/run/commands.h"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

struct LinksArguments {
    std::string folder;
    std::vector<std::string> names;  // empty: all
    bool force = false;
    bool remove = false;
};

// The kinds of things at the place of a link.
enum class Place { kFree, kOwnLink, kFolder, kOther };

// Returns what is at PATH. A link to any dslaunch counts as kOwnLink, even if its target no longer
// exists, as after an update.
Place place_at(const fs::path& path, const fs::path& program) {
    std::error_code failed;
    const fs::file_status status = fs::symlink_status(path, failed);
    if (!fs::exists(status)) return Place::kFree;
    if (fs::is_directory(status)) return Place::kFolder;
    if (!fs::is_symlink(status)) return Place::kOther;
    const fs::path target = fs::read_symlink(path, failed);
    const bool is_own = target.filename() == "dslaunch" || fs::equivalent(path, program, failed);
    return is_own ? Place::kOwnLink : Place::kOther;
}

std::vector<std::string> chosen_names(const LinksArguments& arguments) {
    if (!arguments.names.empty()) return arguments.names;
    std::vector<std::string> names;
    for (const DeepSpeedName& row : deepspeed_names()) names.emplace_back(row.name);
    return names;
}

void print_names() {
    std::vector<std::vector<std::string>> rows = {{"name", "what it does here"}};
    for (const DeepSpeedName& row : deepspeed_names())
        rows.push_back({std::string(row.name), std::string(row.meaning)});
    fmt::print("{}", text_table(rows));
    print_message("dslaunch: `dslaunch links DIR` makes these links in DIR");
}

// Makes a link at PATH to TARGET, in one step even if PATH exists.
void make_link(const fs::path& path, const fs::path& target) {
    const std::string fresh = fmt::format("{}.tmp-{}", path.string(), ::getpid());
    if (::symlink(target.c_str(), fresh.c_str()) == 0) {
        if (::rename(fresh.c_str(), path.c_str()) == 0) return;
        const int cause = errno;
        ::unlink(fresh.c_str());
        errno = cause;
    }
    fail(ExitCode::kDisk, "{}: cannot make this link: {}", printable(path.string()),
         errno_text(errno));
}

// Returns the first program NAME in PATH, or an empty text.
std::string first_in_path(const std::string& name) {
    const char* const path = std::getenv("PATH");
    for (const std::string& folder : split(path == nullptr ? "" : path, ':'))
        if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
    return "";
}

// Tells the user if the shell would not find the links, or would find other programs first.
void tell_path(const fs::path& folder, const std::vector<std::string>& names) {
    std::error_code failed;
    std::vector<std::string> hidden;
    for (const std::string& name : names) {
        const std::string found = first_in_path(name);
        if (found.empty()) {
            print_message(fmt::format("dslaunch: {} is not in PATH: export PATH={}:$PATH",
                                      printable(folder.string()),
                                      printable(shell_word(folder.string()))));
            return;
        }
        if (!fs::equivalent(fs::path(found).parent_path(), folder, failed)) hidden.push_back(found);
    }
    if (!hidden.empty())
        print_message(
            fmt::format("dslaunch: warning: PATH has other programs of these names "
                        "first: {}",
                        printable(join(hidden, ", "))));
}

void make_links(const LinksArguments& arguments, const fs::path& folder, const fs::path& program) {
    const std::vector<std::string> names = chosen_names(arguments);
    std::vector<std::string> in_the_way;
    for (const std::string& name : names) {
        const Place place = place_at(folder / name, program);
        const bool is_blocked =
            place == Place::kFolder || (place == Place::kOther && !arguments.force);
        if (is_blocked) in_the_way.push_back(printable((folder / name).string()));
    }
    if (!in_the_way.empty())
        fail(ExitCode::kInput,
             "{}: already exists; nothing was changed: use --force to replace files, name another "
             "folder, or name only the links that you want: dslaunch links DIR deepspeed",
             join(in_the_way, ", "));
    std::error_code failed;
    const bool is_beside = fs::equivalent(folder, program.parent_path(), failed);
    for (const std::string& name : names) {
        make_link(folder / name, is_beside ? program.filename() : program);
        fmt::print("{} -> {}\n", printable((folder / name).string()),
                   find_deepspeed_name(name)->meaning);
    }
    tell_path(folder, names);
}

void remove_links(const LinksArguments& arguments, const fs::path& folder,
                  const fs::path& program) {
    std::vector<std::string> left;
    size_t removed = 0;
    for (const std::string& name : chosen_names(arguments)) {
        const fs::path path = folder / name;
        const Place place = place_at(path, program);
        if (place == Place::kFree) continue;
        if (place != Place::kOwnLink) {
            left.push_back(printable(path.string()));
            continue;
        }
        if (::unlink(path.c_str()) != 0)
            fail(ExitCode::kDisk, "{}: cannot remove this link: {}", printable(path.string()),
                 errno_text(errno));
        ++removed;
    }
    print_message(fmt::format("dslaunch: {} removed from {}",
                              counted(static_cast<int64_t>(removed), "link"),
                              printable(folder.string())));
    if (!left.empty())
        print_message(fmt::format("dslaunch: not removed, since it is not a link to dslaunch: {}",
                                  join(left, ", ")));
}

void change_links(const LinksArguments& arguments) {
    std::error_code failed;
    fs::path folder = fs::absolute(arguments.folder, failed).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();  // "bin/" and "." end with a slash
    if (!fs::is_directory(folder, failed))
        fail(ExitCode::kInput, "{}: is not a folder: make it first, or name one that is in PATH",
             printable(arguments.folder));
    const fs::path program = fs::path(Machine::this_one().binary_directory) / "dslaunch";
    if (arguments.remove) {
        remove_links(arguments, folder, program);
    } else {
        make_links(arguments, folder, program);
    }
}

}  // namespace

int links_command(CommandWords arguments) {
    LinksArguments parsed;
    std::vector<std::string> known;
    for (const DeepSpeedName& row : deepspeed_names()) known.emplace_back(row.name);
    CommandLine app({.does = "Makes links to dslaunch with the names of DeepSpeed's programs "
                             "(deepspeed, ds, ds_report, ds_ssh, ...). Under such a name, dslaunch "
                             "does what DeepSpeed's program does. Without DIR, lists the names and "
                             "their meanings. Overwrites nothing without --force.",
                     .examples = {"dslaunch links", "dslaunch links ~/.local/bin",
                                  "dslaunch links ~/bin deepspeed ds_report",
                                  "dslaunch links ~/.local/bin --remove"},
                     .exit_codes = "66 when a file is in the way.",
                     .docs = "docs/start/from-deepspeed.md"},
                    "dslaunch links");
    app.add("DIR", parsed.folder, "a folder in PATH");
    app.add("NAME", parsed.names, "only these links; default: all").one_of(known);
    app.add("--force", parsed.force, "replace files and links of other programs");
    app.add("--remove", parsed.remove, "remove the links that lead to dslaunch, and nothing else")
        .excludes("--force");
    bool lists = false;
    app.add("-l,--list", lists).hidden();
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (lists) {
        print_names();
        return 0;
    }
    if (!parsed.folder.empty()) {
        change_links(parsed);
    } else if (parsed.remove || parsed.force) {
        fail(ExitCode::kUsage, "links: a folder is missing: dslaunch links DIR");
    } else {
        print_names();
    }
    return 0;
}

}  // namespace dslaunch::launcher
