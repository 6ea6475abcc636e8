// The tree's own files, for tests of its rules: lines, functions, types and includes, found without
// a compiler.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.h"

namespace dslaunch::test {

struct File {
    std::string path;  // relative to the repository
    std::vector<std::string> lines;
};

inline const std::string kRoot = std::string(test::source_dir()) + "/";

inline File read(const std::string& path) {
    File file{path, {}};
    std::ifstream in(kRoot + path);
    REQUIRE(in.good());
    for (std::string line; std::getline(in, line);) file.lines.push_back(line);
    return file;
}

inline std::string text_of(const std::string& path) {
    std::ifstream in(kRoot + path);
    REQUIRE(in.good());
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

inline bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}
inline bool starts_with(const std::string& text, const std::string& start) {
    return text.rfind(start, 0) == 0;
}

inline bool is_header(const std::string& path) {
    return ends_with(path, ".h") || ends_with(path, ".cuh");
}
inline bool is_source(const std::string& path) {
    return ends_with(path, ".cpp") || ends_with(path, ".cu");
}

// Returns every C++ file under FOLDERS, sorted.
inline std::vector<File> files_under(const std::vector<std::string>& folders) {
    std::vector<File> files;
    for (const std::string& folder : folders) {
        for (const std::filesystem::directory_entry& entry :
             std::filesystem::recursive_directory_iterator(kRoot + folder)) {
            const std::string path = entry.path().string().substr(kRoot.size());
            if (entry.is_regular_file() && (is_header(path) || is_source(path)))
                files.push_back(read(path));
        }
    }
    std::sort(files.begin(), files.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
    REQUIRE(files.size() > 50);  // fewer files: the tree was not found
    return files;
}

inline std::string joined(const std::vector<std::string>& problems) {
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    return text;
}

inline std::string at_line(const File& file, size_t index) {
    return file.path + ":" + std::to_string(index + 1);
}

// Counts columns as an editor does: continuation bytes of UTF-8 take no column.
inline size_t columns(const std::string& line) {
    return static_cast<size_t>(
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

struct Function {
    std::string name;
    size_t first_line = 0;
    size_t lines_count = 0;
};

// Returns the text with blanks in place of comments, strings and preprocessor lines, so that braces
// can be counted. Lines keep their numbers.
inline std::string blanked(const File& file) {
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

// Returns all functions that have a body. A brace begins a body if it is in a namespace or a class,
// and if the statement before it has parentheses and is not an initializer.
inline std::vector<Function> functions_of(const File& file) {
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

// Returns the types that FILE defines in named namespaces, by qualified name:
// "dslaunch::plan::Bucket". Types in an unnamed namespace, a class or a function are left out.
inline std::vector<std::pair<size_t, std::string>> types_of(const File& file) {
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

// Returns the line and the path of each #include "...", for files of lib/ and apps/.
inline std::vector<std::pair<size_t, std::string>> project_includes(const File& file) {
    static const std::regex include(R"re(^#include "([^"]+)")re");
    std::vector<std::pair<size_t, std::string>> found;
    for (size_t i = 0; i < file.lines.size(); ++i) {
        std::smatch match;
        if (std::regex_search(file.lines[i], match, include)) found.emplace_back(i, match[1].str());
    }
    return found;
}

}  // namespace dslaunch::test
