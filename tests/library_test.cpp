// The rules of the headers that are installed for programs of users.
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/source_files.h"

using namespace dslaunch::test;

namespace {

constexpr size_t kColumnsMax = 100;

}  // namespace

TEST_CASE("programs that use the library get the errors and exit codes that the source has") {
    const auto types = [](const char* path) {
        const std::string text = text_of(path);
        const size_t codes = text.find("enum class ExitCode"), error = text.find("class Error :");
        REQUIRE(codes != std::string::npos);
        REQUIRE(error != std::string::npos);
        return text.substr(codes, text.find("\n};", codes) - codes) +
               text.substr(error, text.find("\n};", error) - error);
    };
    CHECK(types("include/dslaunch/error.h") == types("lib/base/error.h"));
}

TEST_CASE("headers that are installed include none that is not") {
    static const std::regex include(R"(^#include ["<]([^">]+)[">])");
    std::vector<std::string> problems;
    int headers = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kRoot + "include/dslaunch")) {
        const File file = read("include/dslaunch/" + entry.path().filename().string());
        ++headers;
        for (size_t i = 0; i < file.lines.size(); ++i) {
            std::smatch match;
            if (columns(file.lines[i]) > kColumnsMax)
                problems.push_back(at_line(file, i) + ": too long");
            if (!std::regex_search(file.lines[i], match, include)) continue;
            const std::string name = match[1];
            const bool is_torch = name == "ATen/core/Tensor.h" && file.path.ends_with("/engine.h");
            if (name.find('/') != std::string::npos && !name.starts_with("dslaunch/") && !is_torch)
                problems.push_back(at_line(file, i) + ": " + name);
        }
    }
    CHECK(headers == 4);
    INFO(joined(problems));
    CHECK(problems.empty());
}
