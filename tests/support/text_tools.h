// Small tools that many tests share: words in texts, whole files, and the errors of calls.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "support/catch.h"

namespace dslaunch::test {

inline bool mentions(std::string_view text, std::string_view word) {
    return text.find(word) != std::string_view::npos;
}

// Returns how often WORD occurs in TEXT.
inline int64_t count_of(std::string_view text, std::string_view word) {
    int64_t count = 0;
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
    return count;
}

// Returns TEXT, TIMES times in a row.
inline std::string repeated(std::string_view text, int64_t times) {
    std::string all;
    for (int64_t i = 0; i < times; ++i) all += text;
    return all;
}

// Returns the bytes of the file at PATH; empty if there is no file.
inline std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the names in FOLDER, sorted.
inline std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

// Writes CONTENT to the file at PATH, and makes its folders.
inline void write_file(const std::filesystem::path& path, std::string_view content) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// Returns the code of the Error that CALL throws, and sets WHAT to its text; kOk if CALL returns.
template <typename Call>
ExitCode code_of(Call&& call, std::string* what = nullptr) {
    try {
        call();
    } catch (const Error& error) {
        if (what != nullptr) *what = error.what();
        return error.code();
    }
    return ExitCode::kOk;
}

// Returns the text of the Error that CALL throws, which must have CODE, or "accepted" if CALL
// returns.
template <typename Call>
std::string error_of(ExitCode code, Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    return "accepted";
}

// Returns the text of the Error that CALL throws, whatever its code is, or "accepted".
template <typename Call>
std::string error_of(Call&& call) {
    std::string what = "accepted";
    static_cast<void>(code_of(call, &what));
    return what;
}

inline bool has_program(const std::string& name) {
    return std::system(("command -v " + name + " >/dev/null").c_str()) == 0;
}

// Makes this process the parent of all processes whose parent is killed from now on, so that the
// test sees when they end.
inline void adopt_orphans() {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
}

}  // namespace dslaunch::test
