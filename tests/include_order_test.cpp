// The order of includes, in blocks that blank lines separate: the header of the unit, <*.h>, other
// <…>, and the project's headers. Each block is sorted.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/source_files.h"

namespace dslaunch::test {
namespace {

// Paths of includes, each with its opening mark: "<vector", "\"base/error.h".
using IncludeBlock = std::vector<std::string>;

// Returns the blocks of includes at the top of FILE, up to the first other line.
std::vector<IncludeBlock> include_blocks(const File& file) {
    static const std::regex include(R"re(^#include (["<][^">]+)[">])re");
    std::vector<IncludeBlock> blocks;
    bool is_in_block = false;
    for (const std::string& line : file.lines) {
        std::smatch match;
        const bool is_include = std::regex_search(line, match, include);
        const bool may_precede = starts_with(line, "//") || line == "#pragma once";
        if (is_include) {
            if (!is_in_block) blocks.emplace_back();
            blocks.back().push_back(match[1].str());
        } else if (!line.empty() && !(blocks.empty() && may_precede)) {
            break;
        }
        is_in_block = is_include;
    }
    return blocks;
}

// Returns the header of FILE's unit, as FILE includes it: that is x.h for x.cpp, and the x.h of a
// library or program for x_test.cpp. Returns an empty text if FILE includes no such header.
std::string own_header_of(const File& file) {
    if (!is_source(file.path)) return "";
    const std::filesystem::path path = file.path.substr(file.path.find('/') + 1);
    const std::string stem = path.stem().string();
    const std::string beside = (path.parent_path() / (stem + ".h")).string();
    const std::string of_test =
        ends_with(stem, "_test") ? "/" + stem.substr(0, stem.size() - 5) + ".h" : "";
    for (const auto& [index, include] : project_includes(file)) {
        if (include == beside) return include;
        if (!of_test.empty() && ends_with(include, of_test) &&
            (std::filesystem::exists(kRoot + "lib/" + include) ||
             std::filesystem::exists(kRoot + "apps/" + include)))
            return include;
    }
    return "";
}

// Returns the place of an include's kind in the order of blocks.
int place_of_include(const std::string& include) {
    if (include[0] == '"') return 2;
    return ends_with(include, ".h") ? 0 : 1;
}

// Returns how FILE breaks the order; empty if it does not.
std::string include_problem(const File& file) {
    std::vector<IncludeBlock> blocks = include_blocks(file);
    const std::string own = own_header_of(file);
    if (!own.empty() && (blocks.empty() || blocks[0] != IncludeBlock{"\"" + own}))
        return own + " is not the first block";
    // A project header that is alone in the first block is the unit's, whatever its name is.
    if (!blocks.empty() && blocks[0].size() == 1 && place_of_include(blocks[0][0]) == 2)
        blocks.erase(blocks.begin());
    int last = -1;
    for (const IncludeBlock& block : blocks) {
        const int place = place_of_include(block[0]);
        for (const std::string& include : block)
            if (place_of_include(include) != place)
                return include + " is in a block of another kind than " + block[0];
        if (place <= last) return "the block of " + block[0] + " is too late";
        if (!std::is_sorted(block.begin(), block.end()))
            return "the block of " + block[0] + " is not sorted";
        last = place;
    }
    return "";
}

}  // namespace

TEST_CASE("includes are in the order: own header, <*.h>, other <…>, the project's headers") {
    std::vector<std::string> problems;
    size_t own_headers = 0;
    for (const File& file : files_under({"lib", "apps", "include", "tests"})) {
        if (!own_header_of(file).empty()) ++own_headers;
        const std::string problem = include_problem(file);
        if (!problem.empty()) problems.push_back(file.path + ": " + problem);
    }
    CHECK(own_headers > 500);  // fewer: the headers of units are not found
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("an include in the wrong place is found, and others are not") {
    const std::string unit = "#include \"base/screen.h\"", c = "#include <unistd.h>",
                      json = "#include <nlohmann/json.hpp>", text = "#include \"base/text.h\"",
                      error = "#include \"base/error.h\"", own = "#include \"base/fd.h\"";
    struct Row {
        const char* path;
        std::vector<std::string> lines;
        bool is_good;
    };
    const Row rows[] = {
        {"lib/base/fd.cpp", {"// Of files.", own, "", c, "", json, "", error, text}, true},
        {"lib/base/fd.cpp", {own, "", "#define A", text, error}, true},  // the top alone
        {"lib/base/fd.cpp", {own}, true},
        {"lib/base/fd.cpp", {own, error}, false},
        {"lib/base/fd.cpp", {c, "", own}, false},
        {"lib/base/fd.cpp", {own, "", json, "", c}, false},
        {"lib/base/fd.cpp", {own, "", c, json}, false},
        {"lib/base/fd.cpp", {own, "", error, "", text}, false},
        {"lib/base/fd.cpp", {own, "", text, error}, false},
        {"lib/base/x.h", {"// X.", "#pragma once", "", c, "", error, text}, true},
        {"lib/base/x.h", {"// X.", "#pragma once", "", error, text, "", c}, false},
        {"tests/unit/base/fd_test.cpp", {own, "", c, "", error}, true},
        {"tests/unit/base/fd_test.cpp", {c, "", error, own}, false},
        {"tests/unit/base/columns_test.cpp", {unit, "", c, "", error}, true},
        {"tests/unit/base/columns_test.cpp", {c, "", error, unit}, true},
    };
    for (const Row& row : rows) {
        INFO(row.path << joined(row.lines));
        CHECK(include_problem({row.path, row.lines}).empty() == row.is_good);
    }
}

}  // namespace dslaunch::test
