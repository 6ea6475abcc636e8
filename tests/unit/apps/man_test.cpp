// Man pages: the source of one page, written by hand, and the pages of all commands. Their lists of
// files, variables and exit codes must be complete.
#include "launcher/manual/man_page.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "launcher/manual/man_facts.h"
#include "launcher/options/option_table.h"
#include "launcher/subcommands.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/skip.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace fs = std::filesystem;

namespace {

std::string text_of_file(const fs::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

bool worker_is_here() {
    return fs::exists(std::string(test::binary_dir()) + "/dsworker");
}

// Returns the sources in lib and apps, one text for each.
std::vector<std::string> sources() {
    std::vector<std::string> texts;
    for (const char* folder : {"/lib", "/apps"})
        for (const auto& entry :
             fs::recursive_directory_iterator(test::source_dir() + std::string(folder)))
            if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h")
                texts.push_back(text_of_file(entry.path()));
    return texts;
}

}  // namespace

TEST_CASE("a man page has the name, the synopsis and each group of options as troff reads them") {
    const HelpPage help{
        .does = "Packs 'it' with a \\ and a-b. More of it.\n.dots at the beginning are text.",
        .examples = {"dslaunch pack a.pt -o b.pt", "dslaunch pack a.pt \\\n    -o c.pt"},
        .exit_codes = "65 when it fails.",
        .docs = "docs/reference/cli.md",
        .usage = {"dslaunch pack -o FILE [options] MODEL.pt", "dslaunch pack --help"},
        .groups = {
            {"arguments", {{"MODEL.pt", "the archive"}}},
            {"subcommands", {}},
            {"options", {{"-o, --out FILE", "archive to write"}, {"--resume[=DIR]", "go on"}}},
            {"rarely used", {{"--deep", "look deeper"}}}}};
    const std::string text = man_text({{"pack"}, help, "2026-11-30", {{}}});
    const std::string head = ".TH DSLAUNCH\\-PACK 1 2026-11-30 \"dslaunch " DSL_VERSION
                             "\" \"dslaunch\"\n"
                             ".nh\n.ad l\n"
                             ".SH NAME\n"
                             "dslaunch\\-pack \\- packs \\(aqit\\(aq with a \\e and a\\-b\n"
                             ".SH SYNOPSIS\n"
                             "\\fBdslaunch pack\\fR \\-o FILE [options] MODEL.pt\n"
                             ".br\n"
                             "\\fBdslaunch pack\\fR \\-\\-help\n"
                             ".SH DESCRIPTION\n"
                             "Packs \\(aqit\\(aq with a \\e and a\\-b. More of it.\n"
                             ".PP\n"
                             "\\&.dots at the beginning are text.\n"
                             ".SH ARGUMENTS\n"
                             ".TP\n\\fIMODEL.pt\\fR\nthe archive\n"
                             ".SH OPTIONS\n"
                             ".TP\n\\fB\\-o\\fR, \\fB\\-\\-out\\fR \\fIFILE\\fR\narchive to write\n"
                             ".TP\n\\fB\\-\\-resume\\fR[=\\fIDIR\\fR]\ngo on\n"
                             ".SS Rarely used\n"
                             ".TP\n\\fB\\-\\-deep\\fR\nlook deeper\n"
                             ".SH EXIT STATUS\n"
                             "65 when it fails.\n"
                             ".PP\nAll commands use this list:\n"
                             ".TP\n\\fB0 ok\\fR\n";
    CHECK(text.substr(0, head.size()) == head);
    CHECK(text.find(".SH EXAMPLES\n.EX\ndslaunch pack a.pt \\-o b.pt\n"
                    "dslaunch pack a.pt \\e\n    \\-o c.pt\n.EE\n") != text.npos);
    CHECK(text.find("\n.SH ENVIRONMENT\n") < text.find("\\fBNO_COLOR\\fR"));
    CHECK(
        text.ends_with(".SH SEE ALSO\n.BR dslaunch (1)\n.PP\n"
                       "In the documentation: docs/reference/cli.md\n"));
    CHECK(text.find("runs/NAME") == text.npos);  // only `run` writes this file
}

TEST_CASE("there is a man page of each command, with each of its options") {
    const TemporaryFolder folder;
    const std::string pages = folder.path() + "/man1";
    JobProcess process(
        folder, {"env", "SOURCE_DATE_EPOCH=86400", test::kDslaunch, "man", "--output", pages});
    REQUIRE(process.wait() == 0);
    INFO(process.err());
    CHECK((process.err().find("warning: the pages of") == std::string::npos) == worker_is_here());
    for (const Subcommand& row : subcommands()) {
        if (*row.help == '\0') continue;
        const std::string file = pages + "/" + man_name({row.name}) + ".1";
        if (!fs::exists(file)) {
            INFO(file);
            CHECK(!worker_is_here());
            report_skipped("the man page of " + std::string(row.name), "dsworker is not built");
            continue;
        }
        CHECK(text_of_file(file).find(" 1 1970-01-02 ") != std::string::npos);
    }
    const std::string run = text_of_file(pages + "/dslaunch-run.1");
    for (const OptionRow& row : option_rows()) {
        const std::string name = split(row.names, ',').front();
        std::string head = "\\fB\\-\\-";
        for (const char c : name) head += c == '-' ? std::string("\\-") : std::string(1, c);
        INFO(name);
        const bool has_page = row.apply != nullptr && name != "scratch";
        CHECK((run.find(head + "\\fR") != std::string::npos) == has_page);
    }
    for (const char* name : {"dslaunch", "dslaunch-ckpt-export", "dslaunch-hosts-trust",
                             "dslaunch-ps-devices", "dslaunch-stop-pid"})
        CHECK(fs::exists(pages + "/" + name + ".1"));
    JobProcess lint(
        folder,
        {"sh", "-c",
         "command -v mandoc >/dev/null || exit 127; mandoc -T lint -W warning " + pages + "/*.1"});
    if (lint.wait() == 127) {
        report_skipped("mandoc's view of the man pages", "mandoc is not installed");
    } else {
        CHECK(lint.out().empty());
    }
}

TEST_CASE("man refuses what is no command, with the nearest name") {
    const TemporaryFolder folder;
    JobProcess process(folder, {test::kDslaunch, "man", "ckpt", "exprt"});
    CHECK(process.wait() == 64);
    CHECK(process.err() ==
          "dslaunch: error: man: there is no command `dslaunch ckpt exprt`; did you "
          "mean `export`?\n");
    JobProcess page(folder, {test::kDslaunch, "man", "ckpt", "export"});
    CHECK(page.wait() == 0);
    CHECK(page.out().starts_with(".TH DSLAUNCH\\-CKPT\\-EXPORT 1 "));
    const std::pair<std::vector<std::string>, const char*> refused[] = {
        {{"zero"}, "`dslaunch config keys zero` the keys of a config"},
        {{"qqqqqq"}, "`dslaunch --help` lists the commands"},
        {{"run", "top"}, "`dslaunch run` has no subcommands: dslaunch man run"},
        {{"--all"}, "all pages need a folder: dslaunch man --output DIR"}};
    for (const auto& [words, told] : refused) {
        std::vector<std::string> command = {test::kDslaunch, "man"};
        command.insert(command.end(), words.begin(), words.end());
        JobProcess refusal(folder, command);
        CHECK(refusal.wait() == 64);
        CHECK_THAT(refusal.err(), Catch::Contains(told));
    }
}

TEST_CASE("man takes the names of pages, of dslaunch itself and of DeepSpeed's programs") {
    const TemporaryFolder folder;
    const std::pair<std::vector<std::string>, const char*> pages[] = {
        {{"dslaunch"}, "DSLAUNCH 1 "},
        {{"1", "run"}, "DSLAUNCH\\-RUN 1 "},
        {{"dslaunch", "run"}, "DSLAUNCH\\-RUN 1 "},
        {{"dslaunch-ckpt-export.1"}, "DSLAUNCH\\-CKPT\\-EXPORT 1 "},
        {{"dslaunch-io-bench"}, "DSLAUNCH\\-IO\\-BENCH 1 "},
        {{"deepspeed"}, "DSLAUNCH\\-RUN 1 "},
        {{"ds_elastic"}, "DSLAUNCH\\-CONFIG\\-CHECK 1 "}};
    for (const auto& [words, title] : pages) {
        INFO(words.front());
        std::vector<std::string> command = {test::kDslaunch, "man"};
        command.insert(command.end(), words.begin(), words.end());
        JobProcess page(folder, command);
        CHECK(page.wait() == 0);
        CHECK(page.out().starts_with(std::string(".TH ") + title));
    }
    JobProcess file(folder, {test::kDslaunch, "man", "run", "-o", folder.path()});
    CHECK(file.wait() == 0);
    CHECK(text_of_file(folder.path() + "/dslaunch-run.1").starts_with(".TH DSLAUNCH\\-RUN 1 "));
    JobProcess again(folder, {test::kDslaunch, "man", "run", "-o", folder.path()});
    CHECK(again.wait() == 66);
    CHECK_THAT(again.err(), Catch::Contains("--force"));
}

TEST_CASE("the environment variables of the man pages are all that the sources read") {
    // Variables that the programs set for each other, variables that every Unix program knows, and
    // DSLAUNCH and RANK, which only the libraries read (docs/guide/engine.md).
    const std::set<std::string> unnamed = {"HOME",        "PATH",           "SHELL",
                                           "USER",        "SSH_CONNECTION", "SLURM_JOB_END_TIME",
                                           "DSL_BINDING", "DSL_HELD_NAME",  "DSL_LOG_LEVEL",
                                           "DSL_HOST",    "DSL_LAUNCH_ID",  "DSL_JOB_ID",
                                           "DSLAUNCH",    "PMI_RANK",       "RANK"};
    std::map<std::string, std::string> constants;  // kTokenVariable -> DSLAUNCH_TOKEN
    const std::regex constant(R"re((k\w+Variable) = "(\w+)")re");
    const std::regex read(R"re((?:getenv|\bvariable)\((?:\w+::)*(?:"(\w+)"|(k\w+Variable)))re");
    std::set<std::string> found;
    for (const bool is_second : {false, true})
        for (const std::string& text : sources()) {
            const std::regex& form = is_second ? read : constant;
            for (std::sregex_iterator at(text.begin(), text.end(), form), end; at != end; ++at) {
                if (!is_second) {
                    constants[(*at)[1]] = (*at)[2];
                } else {
                    found.insert((*at)[1].matched ? (*at)[1].str() : constants[(*at)[2]]);
                }
            }
        }
    REQUIRE(found.contains("DSLAUNCH_TOKEN"));
    std::set<std::string> named;
    for (const ManFact& fact : variables())
        for (const std::string& name : split(fact.name, ',')) named.emplace(trim(name));
    for (const std::string& name : found) {
        INFO(name);
        CHECK(named.contains(name) != unnamed.contains(name));
    }
}

TEST_CASE(
    "the exit codes of the man pages are those of the enum, and the commands of facts exist") {
    int last = -1;
    size_t own = 0;
    for (const ManCode& row : exit_codes()) {
        CHECK(int(row.code) > last);
        CHECK(std::string(exit_code_name(row.code)) != "unknown");
        last = int(row.code);
        own += is_own_code(static_cast<uint32_t>(last));
    }
    size_t all = 0;
    for (uint32_t code = 1; code < 256; ++code) all += is_own_code(code);
    CHECK(own == all);
    for (const auto rows : {variables(), usual_files()})
        for (const ManFact& fact : rows) {
            if (fact.commands.empty()) continue;
            for (const std::string& command : split(fact.commands, '|')) {
                INFO(command);
                CHECK(find_subcommand(command) != nullptr);
            }
        }
}
