// The language of comments, as CONTRIBUTING.md asks for it: plain order of words. A ratchet: what
// is left from before may only become less.
#include <regex>
#include <string>

#include "support/catch.h"
#include "support/source_files.h"

namespace dslaunch::test {
namespace {

// A comment's first line says what is done ("Returns …", "Waits until …"), or is a noun.
constexpr size_t kTwistedHeadsMax = 139;
constexpr size_t kTwistedWordsMax = 278;

bool is_comment(const std::string& line) {
    const size_t begin = line.find_first_not_of(' ');
    return begin != std::string::npos && line.compare(begin, 2, "//") == 0;
}

// Counts MATCHES of a pattern in comments of lib and apps; FIRST: only in those that begin one.
size_t count_in_comments(const std::string& pattern, bool first) {
    const std::regex wanted(pattern, std::regex::icase);
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

TEST_CASE("comments in a twisted order of words become fewer, never more") {
    const size_t heads = count_in_comments(R"(^// (What|Where|Of|How|As|Which)\b)", true);
    const size_t words =
        count_in_comments(R"(\b(those of|that of|none of|behind|anew|is told)\b)", false);
    CHECK(heads <= kTwistedHeadsMax);
    CHECK(words <= kTwistedWordsMax);
    // Lower the limits when they are far off, so that nothing grows back.
    CHECK(heads + 10 > kTwistedHeadsMax);
    CHECK(words + 20 > kTwistedWordsMax);
}

}  // namespace dslaunch::test
