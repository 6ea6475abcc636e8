// The fenced blocks of README and docs, and the lines in them that are commands.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "support/places.h"

namespace dslaunch::test {

constexpr size_t kPageBytesMax = 4U << 20;

struct Block {
    std::string page;  // "docs/reference/cli.md"
    std::string language;
    std::string before;  // the line of text above it
    std::string text;
};

// Returns the pages for users and developers, sorted.
inline std::vector<std::string> pages() {
    namespace fs = std::filesystem;
    const std::string source = source_dir();
    std::vector<std::string> found = {"README.md"};
    for (const char* folder : {"/docs", "/examples"})
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(source + folder))
            if (entry.path().extension() == ".md")
                found.push_back(entry.path().lexically_relative(source).string());
    std::ranges::sort(found);
    return found;
}

inline std::string page_text(const std::string& page) {
    return read_file(std::string(source_dir()) + "/" + page, kPageBytesMax);
}

inline std::vector<Block> blocks_of(const std::string& page) {
    std::vector<Block> blocks;
    bool inside = false;
    std::string before;
    for (const std::string& line : split(page_text(page), '\n')) {
        const std::string bare(trim(line));
        if (bare.starts_with("```")) {
            inside = !inside;
            if (inside) blocks.push_back({page, bare.substr(3), before, ""});
        } else if (inside) {
            blocks.back().text += line + "\n";
        } else if (!bare.empty()) {
            before = bare;
        }
    }
    return blocks;
}

// A command as a page shows it, and what a comment in its line says about it.
struct PageCommand {
    std::string line;
    std::string comment;  // empty: none
};

// The programs with which commands of pages begin. Lines that begin otherwise are output, files or
// code.
constexpr std::array<std::string_view, 24> kProgramsOfPages = {
    "dslaunch", "dsworker", "dslaunch-upload", "make",   "cmake",  "export",  "hf",
    "pip",      "apt",      "apt-get",         "tar",    "bible",  "cp",      "mkdir",
    "curl",     "jq",       "openssl",         "(umask", "python", "python3", "kubectl",
    "docker",   "bash",     "tensorboard"};

// Returns the commands of BLOCK, the lines of each joined. Lines of usage, which have brackets or
// words in capitals in the place of names, are none, and neither are commands that only list what a
// page explains (`programs   dslaunch push …`).
inline std::vector<PageCommand> commands_of(const Block& block) {
    std::vector<PageCommand> commands;
    const std::string joined = std::regex_replace(block.text, std::regex("\\\\\\n\\s*"), "");
    for (std::string line : split(joined, '\n')) {
        line = trim(line);
        if (line.starts_with("$ ")) line.erase(0, 2);
        const std::string program = line.substr(0, line.find(' '));
        const bool is_command =
            std::ranges::find(kProgramsOfPages, program) != kProgramsOfPages.end() ||
            (program.starts_with("examples/") && program.ends_with(".sh"));
        const bool is_usage = program == "dslaunch" &&
                              (line.find('[') != line.npos || line.find("SUBCOMMAND") != line.npos);
        if (!is_command || is_usage || line.find(' ') == line.npos) continue;
        const size_t hash = std::min(line.find(" #"), line.size());
        std::string comment(trim(std::string_view(line).substr(hash)));
        commands.push_back({std::string(trim(line.substr(0, hash))), std::move(comment)});
    }
    return commands;
}

}  // namespace dslaunch::test
