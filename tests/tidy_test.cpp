// The rules of CONTRIBUTING.md that a machine can check, over the tree as it stands: columns,
// sizes, layers, dead files, notes to self, machine paths, and tables that are written down twice.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
namespace fs = std::filesystem;

namespace {

struct File {
    std::string path;  // relative to the repository
    std::vector<std::string> lines;
};

const std::string kRoot = std::string(DSL_SOURCE_DIR) + "/";

File read(const std::string& path) {
    File file{path, {}};
    std::ifstream in(kRoot + path);
    REQUIRE(in.good());
    for (std::string line; std::getline(in, line);) file.lines.push_back(line);
    return file;
}

std::string text_of(const std::string& path) {
    std::ifstream in(kRoot + path);
    REQUIRE(in.good());
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}
bool starts_with(const std::string& text, const std::string& start) {
    return text.rfind(start, 0) == 0;
}

bool is_header(const std::string& path) {
    return ends_with(path, ".h") || ends_with(path, ".cuh");
}
bool is_source(const std::string& path) {
    return ends_with(path, ".cpp") || ends_with(path, ".cu");
}

// Every C++ file under FOLDERS, sorted.
std::vector<File> files_under(const std::vector<std::string>& folders) {
    std::vector<File> files;
    for (const std::string& folder : folders) {
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(kRoot + folder)) {
            const std::string path = entry.path().string().substr(kRoot.size());
            if (entry.is_regular_file() && (is_header(path) || is_source(path)))
                files.push_back(read(path));
        }
    }
    std::sort(files.begin(), files.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
    REQUIRE(files.size() > 50);  // the tree was found
    return files;
}

std::string joined(const std::vector<std::string>& problems) {
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    return text;
}

std::string at_line(const File& file, size_t index) {
    return file.path + ":" + std::to_string(index + 1);
}

// Columns as an editor counts them: UTF-8 continuation bytes take none.
size_t columns(const std::string& line) {
    return static_cast<size_t>(
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

struct Function {
    std::string name;
    size_t first_line = 0;
    size_t lines_count = 0;
};

// The text with comments, strings and preprocessor lines blanked, so that braces can be counted;
// lines keep their numbers.
std::string blanked(const File& file) {
    std::string text;
    for (const std::string& line : file.lines)
        text += (!line.empty() && line[0] == '#' ? std::string(line.size(), ' ') : line) + "\n";
    const auto blank = [&](size_t from, size_t to) {
        for (size_t i = from; i < std::min(to, text.size()); ++i)
            if (text[i] != '\n') text[i] = ' ';
        return to;
    };
    const auto after = [&](const std::string& end, size_t from) {
        const size_t found = text.find(end, from);
        return found == std::string::npos ? text.size() : found + end.size();
    };
    for (size_t i = 0; i < text.size();) {
        if (text.compare(i, 2, "//") == 0) {
            i = blank(i, after("\n", i) - 1);
        } else if (text[i] == 'R' && text.compare(i, 2, "R\"") == 0 && i > 0 &&
                   !std::isalnum(static_cast<unsigned char>(text[i - 1]))) {
            const size_t open = text.find('(', i);
            i = blank(i, after(")" + text.substr(i + 2, open - i - 2) + "\"", open));
        } else if (text[i] == '"' ||
                   (text[i] == '\'' &&
                    (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))))) {
            size_t end = i + 1;
            while (end < text.size() && text[end] != text[i]) end += text[end] == '\\' ? 2 : 1;
            i = blank(i, end + 1);
        } else {
            ++i;
        }
    }
    return text;
}

// Functions with a body, wherever they stand. A brace opens one when it is in a namespace or class
// and the statement before it has parentheses and is not an initializer.
std::vector<Function> functions_of(const File& file) {
    static const std::regex scope(R"((^|\s)(namespace|class|struct|union|enum|extern)\b)");
    static const std::regex initializer(R"((^|[^=!<>])=\s*$|\]\s*=)");
    enum class Brace { kScope, kFunction, kOther };
    struct Open {
        Brace kind;
        std::string name;
        size_t line;
    };
    const std::string text = blanked(file);
    std::vector<Function> found;
    std::vector<Open> open;
    std::string statement;
    size_t line = 0, statement_line = 0;
    for (const char c : text) {
        if (c == '\n') ++line;
        if (c == '{') {
            const bool in_scope = open.empty() || open.back().kind == Brace::kScope;
            const bool call = statement.find('(') != std::string::npos;
            Brace kind = Brace::kOther;
            if (in_scope && call && !std::regex_search(statement, initializer))
                kind = Brace::kFunction;
            if (in_scope && !call && std::regex_search(statement, scope)) kind = Brace::kScope;
            open.push_back({kind, statement.substr(0, statement.find('(')), statement_line});
        }
        if (c == '}' && !open.empty()) {
            if (open.back().kind == Brace::kFunction)
                found.push_back({open.back().name, open.back().line, line - open.back().line + 1});
            open.pop_back();
        }
        if (c == '{' || c == '}' || c == ';') {
            statement.clear();
        } else if (!statement.empty() || !std::isspace(static_cast<unsigned char>(c))) {
            if (statement.empty()) statement_line = line;
            statement += c;
        }
    }
    return found;
}

// The types that FILE defines in named namespaces, by qualified name: "dslaunch::plan::Bucket".
// A type in an unnamed namespace, in a class or in a function is its own file's business.
std::vector<std::pair<size_t, std::string>> types_of(const File& file) {
    static const std::regex space(R"(^(?:inline\s+)?namespace\s+([A-Za-z_][\w:]*)\s*$)");
    static const std::regex type(
        R"(^(?:template\s*<[^{}]*>\s*)?(?:class|struct|union|enum(?:\s+class|\s+struct)?)\s+)"
        R"((?:alignas\([^)]*\)\s*|\[\[\w+\]\]\s*)*([A-Za-z_]\w*)\s*(?:final\s*)?(?::[^:]|$))");
    static const std::regex alias(R"(^using\s+([A-Za-z_]\w*)\s*=)");
    std::vector<std::pair<size_t, std::string>> found;
    std::vector<std::string> scopes;  // one for each open brace; empty: not a named namespace
    std::string statement;
    size_t line = 0, statement_line = 0;
    const auto in_named_namespace = [&] {
        return !scopes.empty() && std::none_of(scopes.begin(), scopes.end(),
                                               [](const std::string& s) { return s.empty(); });
    };
    const auto add = [&](const std::string& name) {
        std::string qualified;
        for (const std::string& scope : scopes) qualified += scope + "::";
        found.emplace_back(statement_line, qualified + name);
    };
    for (const char c : blanked(file)) {
        if (c == '\n') ++line;
        std::smatch match;
        const std::string trimmed = statement.substr(0, statement.find_last_not_of(" \n") + 1);
        if (c == '{') {
            if (in_named_namespace() && std::regex_search(trimmed, match, type))
                add(match[1].str());
            scopes.push_back(std::regex_search(trimmed, match, space) ? match[1].str() : "");
        } else if (c == ';' && in_named_namespace() && std::regex_search(trimmed, match, alias)) {
            add(match[1].str());
        } else if (c == '}' && !scopes.empty()) {
            scopes.pop_back();
        }
        if (c == '{' || c == '}' || c == ';') {
            statement.clear();
        } else if (!statement.empty() || !std::isspace(static_cast<unsigned char>(c))) {
            if (statement.empty()) statement_line = line;
            statement += c;
        }
    }
    return found;
}

// "FOLDER/..." in #include "...", for files of lib/ and apps/.
std::vector<std::pair<size_t, std::string>> project_includes(const File& file) {
    static const std::regex include(R"re(^#include "([^"]+)")re");
    std::vector<std::pair<size_t, std::string>> found;
    for (size_t i = 0; i < file.lines.size(); ++i) {
        std::smatch match;
        if (std::regex_search(file.lines[i], match, include)) found.emplace_back(i, match[1].str());
    }
    return found;
}

// What each folder may include besides itself. Headers that name a seam between neighbours are
// listed one by one.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"base", {}},
    {"health", {"base"}},
    {"launch", {"base"}},
    {"config", {"base"}},
    {"plan", {"base"}},
    {"storage", {"base"}},
    {"kernels", {"base"}},
    {"graph", {"base", "plan", "storage", "kernels", "config"}},
    {"runtime", {"base", "health", "launch", "config", "plan", "storage", "kernels", "graph"}},
    {"zero", {"base", "config", "plan", "storage", "kernels", "graph", "runtime"}},
    {"job", {"base", "launch", "config", "plan", "storage", "kernels", "graph", "runtime", "zero"}},
    {"launcher", {"base", "health", "launch", "config", "plan", "storage"}},
    {"worker",
     {"base", "health", "launch", "config", "plan", "storage", "kernels", "graph", "runtime",
      "zero", "job"}},
};

std::string layer_of(const std::string& path) {
    const size_t slash = path.find('/');  // lib/LAYER/… or apps/PROGRAM/…
    return path.substr(slash + 1, path.find('/', slash + 1) - slash - 1);
}

std::string folder_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// Calls VISIT(file, line, folder of what is included) for each include of another folder of the
// same library or program.
template <typename Visit>
void for_each_inner_edge(const std::vector<File>& files, const Visit& visit) {
    for (const File& file : files) {
        for (const auto& [index, include] : project_includes(file)) {
            for (const char* top : {"lib/", "apps/"}) {
                const std::string target = top + include;
                if (layer_of(file.path) == include.substr(0, include.find('/')) &&
                    fs::exists(kRoot + target) && folder_of(target) != folder_of(file.path)) {
                    visit(file, index, folder_of(target));
                }
            }
        }
    }
}

bool may_use_torch(const std::string& path) {
    for (const char* free :
         {"lib/runtime/comm/", "lib/runtime/executor/", "lib/runtime/schedules/"})
        if (starts_with(path, free)) return false;
    for (const char* folder :
         {"lib/graph/", "lib/runtime/", "lib/zero/", "lib/job/", "apps/worker/"})
        if (starts_with(path, folder)) return true;
    return false;
}

// Included once per instruction set, inside a namespace of its own each time.
const std::set<std::string> kWithoutGuard = {"lib/kernels/cpu/flat_loops.h"};

// The ratchet: files over the limit when the rule came. A figure may only go down; a line goes when
// its file fits.
const std::map<std::string, size_t> kLongFiles = {};
const std::map<std::string, size_t> kLongFunctions = {};

constexpr size_t kColumnsMax = 100;
constexpr size_t kTableColumnsMax = 200;
constexpr size_t kSourceLinesMax = 600;
constexpr size_t kHeaderLinesMax = 300;
constexpr size_t kFunctionLinesMax = 70;
constexpr size_t kFolderFilesMax = 27;

}  // namespace

TEST_CASE("no line is longer than 100 columns, holds a tab or ends in blanks") {
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps", "tests"})) {
        size_t limit = kColumnsMax;
        for (size_t i = 0; i < file.lines.size(); ++i) {
            const std::string& line = file.lines[i];
            // A table with one row a line is marked so that clang-format leaves it alone.
            if (line == "// clang-format off") limit = kTableColumnsMax;
            if (line == "// clang-format on") limit = kColumnsMax;
            if (columns(line) > limit)
                problems.push_back(at_line(file, i) + ": " + std::to_string(columns(line)) +
                                   " columns");
            if (line.find('\t') != std::string::npos)
                problems.push_back(at_line(file, i) + ": a tab");
            if (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())))
                problems.push_back(at_line(file, i) + ": blanks at the end");
        }
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("no file is longer than its limit, and the exceptions only shrink") {
    std::vector<std::string> problems;
    std::set<std::string> used;
    for (const File& file : files_under({"lib", "apps", "tests"})) {
        const size_t usual = is_header(file.path) ? kHeaderLinesMax : kSourceLinesMax;
        const auto exception = kLongFiles.find(file.path);
        const size_t limit = exception == kLongFiles.end() ? usual : exception->second;
        if (file.lines.size() > limit)
            problems.push_back(file.path + ": " + std::to_string(file.lines.size()) +
                               " lines, limit " + std::to_string(limit) + ": split it by idea");
        if (exception != kLongFiles.end() && file.lines.size() > usual) used.insert(file.path);
    }
    for (const auto& [path, lines] : kLongFiles)
        if (!used.count(path)) problems.push_back(path + ": fits now; take it off kLongFiles");
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("no function is longer than 70 lines, and the exceptions only shrink") {
    std::vector<std::string> problems;
    std::set<std::string> used;
    size_t seen_count = 0;
    for (const File& file : files_under({"lib", "apps"})) {
        for (const Function& function : functions_of(file)) {
            ++seen_count;
            const auto exception = kLongFunctions.find(file.path);
            const size_t limit =
                exception == kLongFunctions.end() ? kFunctionLinesMax : exception->second;
            if (function.lines_count > limit)
                problems.push_back(at_line(file, function.first_line) + ": " + function.name +
                                   ": " + std::to_string(function.lines_count) + " lines, limit " +
                                   std::to_string(limit));
            if (exception != kLongFunctions.end() && function.lines_count > kFunctionLinesMax)
                used.insert(file.path);
        }
    }
    for (const auto& [path, lines] : kLongFunctions)
        if (!used.count(path)) problems.push_back(path + ": fits now; take it off kLongFunctions");
    CHECK(seen_count > 300);  // the pattern still recognizes functions
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("functions are found with their length, whatever their signature and contents") {
    const File file{"x.cpp",
                    {"namespace a {",
                     "int one(int x) {  // }",
                     "    if (x) {",
                     "        return f(\"}\", '}', 1'000);",
                     "    }",
                     "    return 2;",
                     "}",
                     "struct S {",
                     "    int two() const {",
                     "        return 2;",
                     "    }",
                     "};",
                     "const int kTable[] = {",
                     "    1,",
                     "};",
                     "S::S(int a,",
                     "     int b)",
                     "    : a_(a), b_(b) {",
                     "    f();",
                     "}",
                     "}  // namespace a"}};
    const std::vector<Function> found = functions_of(file);
    REQUIRE(found.size() == 3);
    CHECK(found[0].name == "int one");
    CHECK(found[0].lines_count == 6);
    CHECK(found[1].lines_count == 3);
    CHECK(found[2].name == "S::S");
    CHECK(found[2].first_line == 15);
    CHECK(found[2].lines_count == 5);
}

TEST_CASE(
    "includes go downward: base, then health launch config plan storage kernels, graph, runtime, "
    "zero, job, apps") {
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps"})) {
        const std::string layer = layer_of(file.path);
        const auto allowed = kMayInclude.find(layer);
        if (allowed == kMayInclude.end()) {
            problems.push_back(file.path + ": the folder " + layer +
                               " has no place in the order of layers");
            continue;
        }
        for (const auto& [index, include] : project_includes(file)) {
            const std::string target = include.substr(0, include.find('/'));
            if (include.find('/') == std::string::npos || include.find("..") != std::string::npos) {
                if (!fs::exists(kRoot + file.path.substr(0, file.path.rfind('/')) + "/" + include))
                    continue;
                problems.push_back(at_line(file, index) +
                                   ": write the path from lib/ or apps/: " + include);
            } else if (target != layer && kMayInclude.count(target) &&
                       !allowed->second.count(target)) {
                problems.push_back(at_line(file, index) + ": " + layer + " may not include " +
                                   include);
            }
        }
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("the folders of a library include each other in one direction") {
    std::map<std::string, std::map<std::string, std::string>> edges;  // from, to, a place of it
    for_each_inner_edge(files_under({"lib", "apps"}),
                        [&](const File& file, size_t index, const std::string& to) {
                            edges[folder_of(file.path)].emplace(to, at_line(file, index));
                        });
    CHECK(edges.size() > 20);
    std::vector<std::string> problems;
    for (const auto& [from, targets] : edges) {
        for (const auto& [to, place] : targets) {
            std::set<std::string> seen = {to};
            std::vector<std::string> open = {to};
            while (!open.empty()) {
                const std::string folder = open.back();
                open.pop_back();
                const auto next = edges.find(folder);
                if (next == edges.end()) continue;
                for (const auto& edge : next->second)
                    if (seen.insert(edge.first).second) open.push_back(edge.first);
            }
            if (seen.count(from))
                problems.push_back(place + ": " + from + " -> " + to +
                                   ", from where a way leads back");
        }
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("no folder of lib or apps has more files than a reader takes in") {
    std::map<std::string, size_t> counts;
    for (const File& file : files_under({"lib", "apps"})) ++counts[folder_of(file.path)];
    std::vector<std::string> problems;
    for (const auto& [folder, count] : counts)
        if (count > kFolderFilesMax)
            problems.push_back(folder + ": " + std::to_string(count) + " files, limit " +
                               std::to_string(kFolderFilesMax));
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("no two types have one qualified name") {
    std::map<std::string, std::string> places;
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps"})) {
        for (const auto& [index, name] : types_of(file)) {
            const auto [other, fresh] = places.emplace(name, at_line(file, index));
            if (!fresh)
                problems.push_back(at_line(file, index) + ": " + name + " is also defined at " +
                                   other->second);
        }
    }
    CHECK(places.size() > 500);
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("types are found by qualified name, in named namespaces only") {
    const File file{
        "x.h",
        {"namespace a::b {", "struct One {", "    struct Inner {};", "};",
         "enum class Two : int { kX };", "using Three = int;", "template <typename T>",
         "class Four final : public Base<T> {};", "class Declared;", "struct One make();",
         "int f() { struct Local {}; return 0; }", "namespace {", "struct Hidden {};", "}",
         "namespace c { union Five { int x; }; }", "}", "struct One {};"}};
    std::vector<std::string> names;
    for (const auto& found : types_of(file)) names.push_back(found.second);
    CHECK(names == std::vector<std::string>{"a::b::One", "a::b::Two", "a::b::Three", "a::b::Four",
                                            "a::b::c::Five"});
}

TEST_CASE("LibTorch's headers stay in graph, runtime, zero, job and the worker") {
    static const std::regex torch(R"(^#include <(torch|ATen|c10|caffe2)/)");
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps"}))
        for (size_t i = 0; i < file.lines.size(); ++i)
            if (std::regex_search(file.lines[i], torch) && !may_use_torch(file.path))
                problems.push_back(at_line(file, i) + ": " + file.lines[i]);
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("every header begins with its guard and a comment, and somebody includes it") {
    const std::vector<File> files = files_under({"lib", "apps", "tests"});
    std::set<std::string> included;
    for (const File& file : files)
        for (const auto& [index, include] : project_includes(file)) {
            included.insert(include);
            // Tests may include a header of their own folder by its name.
            included.insert(file.path.substr(6, file.path.rfind('/') - 5) + include);
        }
    std::vector<std::string> problems;
    for (const File& file : files) {
        if (!is_header(file.path)) continue;
        if (file.lines.empty() || !starts_with(file.lines[0], "//"))
            problems.push_back(file.path + ": does not begin with what it is for");
        const bool guarded =
            std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end();
        if (!guarded && !kWithoutGuard.count(file.path))
            problems.push_back(file.path + ": no #pragma once");
        if (!included.count(file.path.substr(file.path.find('/') + 1)))
            problems.push_back(file.path + ": nobody includes it");
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("every source file belongs to a target") {
    // Folders whose CMakeLists.txt takes all of *.cpp are fine as they are; elsewhere the file must
    // be named.
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps", "tests"})) {
        if (!is_source(file.path)) continue;
        const std::string name = file.path.substr(file.path.rfind('/') + 1);
        bool taken = false;
        for (fs::path folder = fs::path(file.path).parent_path(); !folder.empty() && !taken;
             folder = folder.parent_path()) {
            const std::string list = (folder / "CMakeLists.txt").string();
            if (!fs::exists(kRoot + list)) continue;
            const std::string text = text_of(list);
            const bool own = folder == fs::path(file.path).parent_path();
            const bool globbed = text.find("*.cpp") != std::string::npos ||
                                 text.find("*_fuzz.cpp") != std::string::npos;
            const bool library = own && text.find("dsl_library(") != std::string::npos &&
                                 text.find("SOURCES") == std::string::npos;
            const bool test =
                own && ends_with(name, "_test.cpp") && text.find("dsl_test(") != std::string::npos;
            taken = globbed || library || test || text.find(name) != std::string::npos;
        }
        if (!taken) problems.push_back(file.path + ": no CMakeLists.txt takes it");
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("notes to self name an issue, and no path of one machine is in the programs") {
    // Written in pieces, so that this file does not find itself.
    const std::regex note(std::string("\\b(TO") + "DO(?!\\(#[0-9]+\\))|FIX" + "ME|X" + "XX)\\b");
    const std::regex machine(std::string("\"/(wo") + "rk|ro" + "ot|ho" + "me|tm" + "p)/");
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps", "tests"})) {
        for (size_t i = 0; i < file.lines.size(); ++i) {
            if (std::regex_search(file.lines[i], note))
                problems.push_back(at_line(file, i) +
                                   ": write it as TO"
                                   "DO(#issue)");
            if (!starts_with(file.path, "tests/") && std::regex_search(file.lines[i], machine))
                problems.push_back(at_line(file, i) + ": a path of one machine");
        }
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("the table of exit codes in the README is the one in the code") {
    static const std::regex row(R"(^\| *([0-9]+) *\| *`?([a-z_ -]+)`? *\|)");
    std::map<int, std::string> written;
    for (const std::string& line : read("README.md").lines) {
        std::smatch match;
        if (std::regex_search(line, match, row))
            written[std::stoi(match[1].str())] = match[2].str();
    }
    static const std::regex enumerator(R"(^    k[A-Za-z]+ = ([0-9]+),)");
    std::map<int, std::string> coded;
    for (const std::string& line : read("lib/base/error.h").lines) {
        std::smatch match;
        if (!std::regex_search(line, match, enumerator)) continue;
        const int code = std::stoi(match[1].str());
        coded[code] = exit_code_name(static_cast<ExitCode>(code));
    }
    CHECK(coded.size() == 14);
    for (auto& [code, name] : written) name.erase(name.find_last_not_of(' ') + 1);
    CHECK(written == coded);
}
