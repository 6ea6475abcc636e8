// The language of comments, as CONTRIBUTING.md asks for it: a plain order of words.
#include <regex>
#include <string>

#include "support/catch.h"
#include "support/source_files.h"

namespace dslaunch::test {
namespace {

bool is_comment(const std::string& line) {
    const size_t begin = line.find_first_not_of(' ');
    return begin != std::string::npos && line.compare(begin, 2, "//") == 0;
}

// Counts MATCHES of a pattern in comments of lib and apps; FIRST: only in those that begin one.
size_t count_in_comments(const std::string& pattern, bool first) {
    const std::regex wanted(pattern);
    size_t count = 0;
    for (const File& file : files_under({"lib", "apps"})) {
        for (size_t i = 0; i < file.lines.size(); ++i) {
            const std::string& line = file.lines[i];
            const size_t at = line.find("//");
            if (at == std::string::npos) continue;
            if (first && (!is_comment(line) || (i > 0 && is_comment(file.lines[i - 1])))) continue;
            const std::string text = line.substr(at);
            count += static_cast<size_t>(std::distance(
                std::sregex_iterator(text.begin(), text.end(), wanted), std::sregex_iterator()));
        }
    }
    return count;
}

}  // namespace

TEST_CASE("comments begin with what they say, in a plain order of words") {
    // "Returns where the turn ends.", not "Where the turn ends, of what stands behind it".
    CHECK(count_in_comments("^// (What|Where|Of|How|As|Which) ", true) == 0);
    CHECK(count_in_comments("\\b(those of|that of|none of|behind|anew|is told)\\b", false) == 0);
    CHECK(count_in_comments("^// ", true) > 1000);  // fewer: no comment is found
}

}  // namespace dslaunch::test
