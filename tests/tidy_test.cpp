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
#include "support/source_files.h"

using namespace dslaunch;
using namespace dslaunch::test;
namespace fs = std::filesystem;

namespace {

// The folders that each folder may include besides itself. Headers that name a seam between
// neighbours are listed one by one.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"base", {}},
    {"health", {"base"}},
    {"launch", {"base"}},
    {"config", {"base"}},
    {"plan", {"base"}},
    {"storage", {"base"}},
    {"text", {"base"}},
    {"decoder", {"base", "storage", "kernels", "text", "runtime"}},
    {"server", {"base", "decoder"}},
    {"compress", {"base", "storage", "kernels", "decoder"}},
    {"kernels", {"base"}},
    {"device", {"base", "kernels"}},
    {"graph", {"base", "plan", "storage", "kernels", "config"}},
    {"runtime",
     {"base", "health", "launch", "config", "plan", "storage", "kernels", "device", "graph"}},
    {"zero", {"base", "config", "plan", "storage", "kernels", "device", "graph", "runtime"}},
    {"job",
     {"base", "launch", "config", "plan", "storage", "kernels", "device", "graph", "runtime",
      "zero"}},
    {"launcher", {"base", "health", "launch", "config", "plan", "storage"}},
    {"worker",
     {"base", "health", "launch", "config", "plan", "storage", "kernels", "device", "graph",
      "runtime", "zero", "job", "text", "decoder", "server", "compress"}},
    {"engine",
     {"base", "launch", "config", "plan", "storage", "kernels", "device", "graph", "runtime",
      "zero", "job"}},
    {"client", {"base", "launch"}},
};

// The programs whose interface, in include/dslaunch, is in the namespace of all.
const std::set<std::string> kInterfaces = {"engine", "client"};

std::string layer_of(const std::string& path) {
    const size_t slash = path.find('/');  // path is lib/LAYER/… or apps/PROGRAM/…
    return path.substr(slash + 1, path.find('/', slash + 1) - slash - 1);
}

std::string folder_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

// Calls VISIT(file, line, folder of the included file) for each include of another folder of the
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
         {"lib/graph/", "lib/runtime/", "lib/zero/", "lib/job/", "apps/worker/", "apps/engine/"})
        if (starts_with(path, folder)) return true;
    return false;
}

// The files that are included once per instruction set, inside a namespace of its own each time.
const std::set<std::string> kWithoutGuard = {"lib/kernels/cpu/flat_loops.h"};

// The files that declare another project's functions, and nothing of ours.
const std::set<std::string> kOfOthers = {"lib/graph/segment/autocast_mode.h"};

// The ratchet: files over the limit when the rule came. A figure may only go down; a line goes when
// its file fits.
const std::map<std::string, size_t> kLongFiles = {};
const std::map<std::string, size_t> kLongFunctions = {};

// The ratchet of folders with too many files. What tests share stands in one folder, so that
// nobody writes a second one of it.
const std::map<std::string, size_t> kWideFolders = {{"tests/support", 48}};

constexpr size_t kTidyColumnsMax = 100;
constexpr size_t kTableColumnsMax = 200;
constexpr size_t kSourceLinesMax = 600;
constexpr size_t kHeaderLinesMax = 300;
constexpr size_t kFunctionLinesMax = 70;
constexpr size_t kFolderFilesMax = 27;

// One place of each edge, by its beginning, then by its end.
using Edges = std::map<std::string, std::map<std::string, std::string>>;

// The edges from whose end a way leads back to their beginning.
std::vector<std::string> edges_that_lead_back(const Edges& edges) {
    std::vector<std::string> found;
    for (const auto& [from, targets] : edges) {
        for (const auto& [to, place] : targets) {
            std::set<std::string> seen = {to};
            std::vector<std::string> open = {to};
            while (!open.empty()) {
                const auto next = edges.find(open.back());
                open.pop_back();
                if (next == edges.end()) continue;
                for (const auto& edge : next->second)
                    if (seen.insert(edge.first).second) open.push_back(edge.first);
            }
            if (seen.count(from))
                found.push_back(place + ": " + from + " -> " + to +
                                ", from where a way leads back");
        }
    }
    return found;
}

// True if NAME is a namespace of the library or program LAYER. Base's is that around all others.
bool is_namespace_of(const std::string& layer, const std::string& name) {
    if (layer == "base") return !kMayInclude.count(name.substr(name.rfind(':') + 1));
    if (kInterfaces.count(layer) && name == "dslaunch") return true;
    const std::string own = "dslaunch::" + layer;
    return name == own || starts_with(name, own + "::");
}

// The places of FILE that are not in its library's namespace. Types of others may be declared in
// theirs, and a file of macros alone needs none.
std::vector<std::string> namespace_problems(const File& file) {
    static const std::regex opens(R"(^namespace (dslaunch[\w:]*) \{)");
    static const std::regex declares(R"(^(class|struct|enum class) \w+( : \w+)?;$)");
    static const std::regex says_nothing(R"(^\s*(//.*|#.*)?$)");
    const std::string layer = layer_of(file.path);
    std::vector<std::string> problems;
    bool has_own = false, has_code = false, in_others = false;
    for (size_t i = 0; i < file.lines.size(); ++i) {
        const std::string& line = file.lines[i];
        std::smatch match;
        if (std::regex_search(line, match, opens)) {
            in_others = !is_namespace_of(layer, match[1].str());
            has_own = has_own || !in_others;
        } else if (!std::regex_match(line, says_nothing)) {
            has_code = true;
            if (starts_with(line, "}")) in_others = false;
            if (in_others && !std::regex_match(line, declares))
                problems.push_back(at_line(file, i) + ": in another library's namespace: " + line);
        }
    }
    if (has_code && !has_own) problems.push_back(file.path + ": nothing is in its namespace");
    for (const auto& [index, name] : types_of(file)) {
        const std::string space = name.substr(0, name.rfind("::"));
        if (starts_with(space, "dslaunch") && !is_namespace_of(layer, space))
            problems.push_back(at_line(file, index) + ": " + name);
    }
    return problems;
}

std::string without_extension(const std::string& path) {
    return path.substr(0, path.rfind('.'));
}

}  // namespace

TEST_CASE("no line is longer than 100 columns, holds a tab or ends in blanks") {
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps", "tests"})) {
        size_t limit = kTidyColumnsMax;
        for (size_t i = 0; i < file.lines.size(); ++i) {
            const std::string& line = file.lines[i];
            // A table with one row a line is marked so that clang-format leaves it alone.
            if (line == "// clang-format off") limit = kTableColumnsMax;
            if (line == "// clang-format on") limit = kTidyColumnsMax;
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
    CHECK(seen_count > 300);  // fewer: the pattern finds no functions
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

// A file of a row is followed by names that stand in it, in its .h or its .cpp.
TEST_CASE("the rows of where-decided.md name files that there are, and what stands in them") {
    const std::regex quoted("`([^`]+)`");
    std::vector<std::string> problems;
    int rows = 0;
    for (const std::string& line : read("docs/where-decided.md").lines) {
        const size_t cell = line.find(" | ");
        if (!line.starts_with("| ") || cell == std::string::npos) continue;
        rows += line.starts_with("| question") ? 0 : 1;
        std::string file;
        std::string text;
        const std::string names = line.substr(cell);
        for (std::sregex_iterator it(names.begin(), names.end(), quoted), end; it != end; ++it) {
            const std::string name = (*it)[1];
            const bool is_file = name.find('/') != std::string::npos || name.ends_with(".cpp") ||
                                 name.ends_with(".h") || name.ends_with(".txt");
            if (!is_file) {
                if (text.find(name) == std::string::npos)
                    problems.push_back(fmt::format("{}: {} is not in {}", line, name, file));
                continue;
            }
            // A file without a folder lies in that of the one before.
            file = name.find('/') == std::string::npos ? folder_of(file) + "/" + name : name;
            if (!fs::exists(kRoot + file)) {
                problems.push_back(fmt::format("{}: there is no {}", line, file));
                continue;
            }
            const std::string stem = file.substr(0, file.rfind('.'));
            text = fs::is_directory(kRoot + file) ? "" : text_of(file);
            for (const char* other : {".h", ".cpp"})
                if (fs::exists(kRoot + stem + other)) text += text_of(stem + other);
        }
    }
    CHECK(rows > 100);   // fewer: the pattern finds no rows
    CHECK(rows <= 150);  // names carry the rest
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE(
    "includes go downward: base, then health launch config plan storage kernels device, graph, "
    "runtime, zero, job, apps") {
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
    Edges edges;
    for_each_inner_edge(files_under({"lib", "apps"}),
                        [&](const File& file, size_t index, const std::string& to) {
                            edges[folder_of(file.path)].emplace(to, at_line(file, index));
                        });
    CHECK(edges.size() > 20);
    const std::vector<std::string> problems = edges_that_lead_back(edges);
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("headers with their sources include each other in one direction") {
    // The way to a host may be an ssh session with another one.
    const std::set<std::string> allowed = {"launch/transport/ssh/ssh_way",
                                           "launch/transport/ssh/ssh_session"};
    Edges edges;
    for (const File& file : files_under({"lib", "apps"})) {
        const std::string from = without_extension(file.path.substr(file.path.find('/') + 1));
        for (const auto& [index, include] : project_includes(file)) {
            const std::string to = without_extension(include);
            if (to != from && !(allowed.count(from) && allowed.count(to)))
                edges[from].emplace(to, at_line(file, index));
        }
    }
    CHECK(edges.size() > 400);
    const std::vector<std::string> problems = edges_that_lead_back(edges);
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("edges that lead back are found, and no others") {
    const Edges edges = {
        {"a", {{"b", "a:1"}}}, {"b", {{"c", "b:1"}, {"d", "b:2"}}}, {"c", {{"a", "c:1"}}}};
    CHECK(edges_that_lead_back(edges).size() == 3);
    CHECK(
        edges_that_lead_back({{"a", {{"b", "a:1"}, {"c", "a:2"}}}, {"b", {{"c", "b:1"}}}}).empty());
}

TEST_CASE("no folder has more files than a reader takes in, and the exceptions only shrink") {
    std::map<std::string, size_t> counts;
    for (const File& file : files_under({"lib", "apps", "tests"})) ++counts[folder_of(file.path)];
    std::vector<std::string> problems;
    for (const auto& [folder, count] : counts) {
        const auto exception = kWideFolders.find(folder);
        const size_t limit = exception == kWideFolders.end() ? kFolderFilesMax : exception->second;
        if (count > limit)
            problems.push_back(folder + ": " + std::to_string(count) + " files, limit " +
                               std::to_string(limit));
    }
    for (const auto& [folder, files] : kWideFolders)
        if (counts[folder] <= kFolderFilesMax)
            problems.push_back(folder + ": fits now; take it off kWideFolders");
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("every file of a library or program is in its namespace, and base in that of all") {
    std::vector<std::string> problems;
    for (const File& file : files_under({"lib", "apps"})) {
        if (kOfOthers.count(file.path)) continue;
        for (const std::string& problem : namespace_problems(file)) problems.push_back(problem);
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("a file outside its namespace is found, and one that declares others' types is not") {
    const auto problems = [](const std::string& path, const std::vector<std::string>& lines) {
        return namespace_problems({path, lines}).size();
    };
    const std::string plan = "lib/plan/x.h";
    const std::vector<std::string> good = {"namespace torch::jit {",
                                           "struct Node;",
                                           "}",
                                           "namespace dslaunch::graph {",
                                           "class Model;",
                                           "enum class Kind : int;",
                                           "}",
                                           "namespace dslaunch::plan {",
                                           "struct One {};",
                                           "}"};
    CHECK(problems(plan, good) == 0);
    CHECK(problems("lib/zero/x.h", good) > 0);
    CHECK(problems("lib/base/x.h", {"namespace dslaunch {", "struct One {};", "}"}) == 0);
    CHECK(problems(plan, {"namespace dslaunch {", "struct One {};", "}"}) > 0);
    CHECK(problems(plan, {"int main() {", "    return 0;", "}"}) > 0);
    CHECK(problems(plan, {"namespace dslaunch::plan {", "}", "namespace dslaunch::graph {",
                          "int use(Model& model);", "}"}) == 1);
    CHECK(problems(plan, {"#pragma once", "#define DSL_X 1"}) == 0);
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

TEST_CASE("LibTorch's headers stay in graph, runtime, zero, job, the worker and the engine") {
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
    // The nearest CMakeLists.txt above a file takes all of *.cpp below it, or names the file.
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
            const bool globbed = text.find("*.cpp") != std::string::npos ||
                                 text.find("*_fuzz.cpp") != std::string::npos;
            const bool library = text.find("dsl_library(") != std::string::npos &&
                                 text.find("SOURCES") == std::string::npos;
            const bool test =
                ends_with(name, "_test.cpp") && text.find("dsl_test(") != std::string::npos;
            taken = globbed || library || test || text.find(name) != std::string::npos;
            break;  // the folders above have targets of their own
        }
        if (!taken) problems.push_back(file.path + ": no CMakeLists.txt takes it");
    }
    INFO(joined(problems));
    CHECK(problems.empty());
}

TEST_CASE("notes to self name an issue, and no path of one machine is in the programs") {
    // The words are written in pieces, so that this file does not find itself.
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

TEST_CASE("the exit codes in the README and in their page are the ones in the code") {
    static const std::regex row(R"(^\| *([0-9]+) +([a-z-]+) *\|)");
    static const std::regex named(R"(([0-9]+) ([a-z-]+)[,.])");
    std::map<int, std::string> in_page;
    for (const std::string& line : read("docs/help/exit-codes.md").lines) {
        std::smatch match;
        if (std::regex_search(line, match, row))
            in_page[std::stoi(match[1].str())] = match[2].str();
    }
    std::map<int, std::string> in_readme;
    std::string section;
    bool in_section = false;
    for (const std::string& line : read("README.md").lines) {
        if (line.starts_with("## ")) in_section = line == "## Exit codes";
        if (in_section) section += line + " ";
    }
    for (std::sregex_iterator it(section.begin(), section.end(), named), end; it != end; ++it)
        in_readme[std::stoi((*it)[1].str())] = (*it)[2].str();
    static const std::regex enumerator(R"(^    k[A-Za-z]+ = ([0-9]+),)");
    std::map<int, std::string> coded;
    for (const std::string& line : read("lib/base/error.h").lines) {
        std::smatch match;
        if (!std::regex_search(line, match, enumerator)) continue;
        const int code = std::stoi(match[1].str());
        coded[code] = exit_code_name(static_cast<ExitCode>(code));
    }
    CHECK(coded.size() == 14);
    CHECK(in_page == coded);
    CHECK(in_readme == coded);
}

TEST_CASE("the README has 120 lines at most") {
    CHECK(read("README.md").lines.size() <= 120);
}
