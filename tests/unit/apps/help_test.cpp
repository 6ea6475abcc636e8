// Every subcommand's --help as a user reads it. All pages have one form. They are found by
// following the lists from `dslaunch --help` on.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "launcher/options/parse_run.h"
#include "launcher/subcommands.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

using Words = std::vector<std::string>;

constexpr size_t kColumnsMax = 80;
// The commands whose help dsworker prints itself.
const std::set<std::string> kOfWorker = {"plan", "model", "generate"};
// Forms of a command that no list contains.
const std::vector<Words> kFurther = {{"ps", "--devices"}, {"stop", "--pid"}};

bool worker_is_built() {
    return std::filesystem::exists(std::string(test::binary_dir()) + "/dsworker");
}

std::string help_of(Words words) {
    const TemporaryFolder folder;
    words.insert(words.begin(), test::kDslaunch);
    words.emplace_back("--help");
    JobProcess process(folder, words);
    CHECK(process.wait() == 0);
    CHECK(process.err().empty());
    return process.out();
}

// A section that has entries: a title, and below it the lines that begin with two blanks.
struct Section {
    std::string title;
    std::vector<std::string> lines;  // without the two leading blanks
};

std::vector<Section> sections_of(const std::string& help) {
    std::vector<Section> sections;
    const std::vector<std::string> lines = split(help, '\n');
    for (size_t i = 1; i + 1 < lines.size(); ++i) {
        const bool is_title =
            lines[i - 1].empty() && lines[i].ends_with(':') && lines[i + 1].starts_with("  ");
        if (!is_title) continue;
        sections.push_back({lines[i].substr(0, lines[i].size() - 1), {}});
        for (++i; i < lines.size() && !lines[i].empty(); ++i) {
            CHECK(lines[i].starts_with("  "));
            sections.back().lines.push_back(lines[i].substr(2));
        }
    }
    return sections;
}

const Section* find(const std::vector<Section>& sections, const std::string& title) {
    const auto found = std::ranges::find(sections, title, &Section::title);
    return found == sections.end() ? nullptr : &*found;
}

// Checks that all texts of SECTION begin in one column.
void check_entries(const Section& section, size_t column) {
    for (const std::string& line : section.lines) {
        INFO(line);
        const bool goes_on = line.starts_with("  ");
        const size_t text = goes_on ? line.find_first_not_of(' ') : line.find("  ");
        if (text == std::string::npos) continue;  // a long head; its text is below it
        CHECK(line.find_first_not_of(' ', text) == column);
        // A value's name says what it is, not its type.
        const std::string head = line.substr(0, text) + " ";
        for (const char* type : {" INT ", " FLOAT ", " UINT "})
            CHECK((goes_on || head.find(type) == std::string::npos));
    }
}

// Returns the column in which the first text of the options begins.
size_t text_column(const std::vector<Section>& sections) {
    for (const Section& section : sections) {
        if (section.title.starts_with("example")) continue;
        for (const std::string& line : section.lines) {
            const size_t end = line.starts_with(" ") ? std::string::npos : line.find("  ");
            if (end != std::string::npos) return line.find_first_not_of(' ', end);
        }
    }
    return 0;
}

void check_examples(const Section& section) {
    for (const std::string& line : section.lines) {
        INFO(line);
        CHECK(line.find("dslaunch ") != std::string::npos);
    }
}

void check_form(const std::string& help, const std::string& command) {
    const std::string usage = command == "dslaunch run" ? "dslaunch [run]" : command;
    CHECK(help.starts_with("usage: " + usage + " "));
    for (const std::string& line : split(help, '\n')) {
        INFO(line);
        CHECK(columns_of(line) <= kColumnsMax);
        CHECK(!line.ends_with(' '));
    }
    // The sentences after the usage say what the command does.
    const size_t does = help.find("\n\n");
    REQUIRE(does != std::string::npos);
    const std::string sentences = help.substr(does + 2, help.find("\n\n", does + 2) - does - 2);
    CHECK(std::isupper(static_cast<unsigned char>(sentences.front())) != 0);
    CHECK(sentences.ends_with('.'));
    const std::vector<Section> sections = sections_of(help);
    const size_t column = text_column(sections);
    for (const Section& section : sections) {
        INFO(section.title);
        CHECK(std::islower(static_cast<unsigned char>(section.title.front())) != 0);
        CHECK(!section.lines.empty());
        if (section.title.starts_with("example")) {
            check_examples(section);
        } else {
            check_entries(section, column);
        }
    }
    CHECK(help.find("\n  -h, --help ") != std::string::npos);
    CHECK(std::ranges::any_of(sections, [](const Section& section) {
              return section.title.starts_with("example");
          }) == (command != "dslaunch hosts"));
    const size_t more = help.find("\nmore: docs/");
    REQUIRE(more != std::string::npos);
    for (const std::string& page : split(trim(help.substr(more + 7)), ',')) {
        INFO(page);
        CHECK(std::filesystem::exists(std::string(test::source_dir()) + "/" +
                                      std::string(trim(page))));
    }
}

// Checks the help of WORDS and of all subcommands that it lists. Returns the number of commands.
int walk(const Words& words) {
    const std::string command = words.empty() ? "dslaunch" : "dslaunch " + join(words, " ");
    INFO(command);
    const std::string help = help_of(words);
    check_form(help, command);
    int count = 1;
    const std::vector<Section> sections = sections_of(help);
    const Section* subcommands = find(sections, "subcommands");
    if (subcommands == nullptr) return count;
    for (const std::string& line : subcommands->lines) {
        const std::string name = line.substr(0, line.find(' '));
        if (name.empty()) continue;  // continues the line above it
        if (kOfWorker.contains(name) && !worker_is_built()) {
            report_skipped("the form of the help of " + name, "dsworker is not built");
            continue;
        }
        Words further = words;
        further.push_back(name);
        count += walk(further);
    }
    return count;
}

}  // namespace

TEST_CASE("the help of every subcommand has the same form, 80 columns wide") {
    const int count = walk({});
    const auto rows = subcommands();
    CHECK(count > std::ranges::count_if(rows, [](const auto& row) { return *row.help != '\0'; }));
    for (const Words& words : kFurther) {
        const std::string command = "dslaunch " + join(words, " ");
        INFO(command);
        check_form(help_of(words), command);
    }
}

TEST_CASE("the help of run leads from training to hosts, and leaves other launchers to --all") {
    const std::string help = help_text(run_page(false, false));
    size_t last = 0;
    for (const char* title : {"\ntraining a model:\n", "\noutput:\n", "\nhosts:\n"}) {
        INFO(title);
        const size_t at = help.find(title);
        REQUIRE(at != std::string::npos);
        CHECK(at > last);
        last = at;
    }
    CHECK(help.find("Hugging Face folder") < help.find("train.pt2"));
    CHECK(help.find("--data FILE ") < help.find("--steps"));
    CHECK(help.find("\nexamples:\n  dslaunch data prepare chats.jsonl --model SmolLM2") !=
          std::string::npos);
    for (const char* other : {"accepted as in torchrun (", "known but refused", "--use-env",
                              "--save-pid", "--mixed-precision", "--scratch"})
        CHECK(help.find(other) == std::string::npos);
    CHECK(help_text(run_page(true, false)).find("--scratch") != std::string::npos);
}
