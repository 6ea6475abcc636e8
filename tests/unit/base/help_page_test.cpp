#include "base/text/help_page.h"

#include <optional>

#include "base/text/command_line.h"
#include "support/catch.h"

namespace dslaunch {
namespace {

// Written by hand in the form that docs/decisions/012 defines.
constexpr const char* kPackHelp = R"(usage: dslaunch pack -o FILE [options] MODEL.pt [MORE]

Packs a model. Nothing is sent, and what is in the archive already stays where
it was before.

arguments:
  MODEL.pt                  the archive
  MORE                      what else

options:
  -o, --output FILE         archive to write
  --size N                  of it, in tensors, default 3
  --list LIST               numbers, default 1,2
  --a-name-that-is-rather-long SECONDS
                            how long to wait for the other end before this one
                            gives up and says so
  --no-check                do not look
  -h, --help                this text

rarely used:
  --deep                    look deeper

examples:
  dslaunch pack a.pt -o b.pt
  dslaunch pack a.pt \
      -o c.pt

exit codes: 65 when the archive holds what it should not hold, 66 when it cannot
            be read.

more: docs/reference/cli.md
)";

}  // namespace

TEST_CASE("a command's help has all that was declared, in the form that all commands have") {
    CommandLine app(
        {.does = "Packs a model. Nothing is sent, and what is in the archive already "
                 "stays where it was before.",
         .examples = {"dslaunch pack a.pt -o b.pt", "dslaunch pack a.pt \\\n    -o c.pt"},
         .exit_codes = "65 when the archive holds what it should not hold, 66 when it "
                       "cannot be read.",
         .docs = "docs/reference/cli.md"},
        "dslaunch pack");
    std::string model, more, out;
    int size = 3;
    std::vector<int> list = {1, 2};
    std::optional<double> seconds;
    bool check = true, deep = false, hidden = false;
    app.add("MODEL.pt", model, "the archive").required();
    app.add("MORE", more, "what else");
    app.add("-o,--output FILE", out, "archive to write").required();
    app.add("--size N", size, "of it, in tensors").range(1, 5).show_default();
    app.add("--list LIST", list, "numbers").show_default();
    app.add("--a-name-that-is-rather-long SECONDS", seconds,
            "how long to wait for the other end before this one gives up and says so");
    app.add("!--no-check", check, "do not look");
    app.add("--hidden", hidden, "nobody needs to know").hidden();
    app.group("rarely used");
    app.add("--deep", deep, "look deeper");
    CHECK(app.help() == kPackHelp);
}

TEST_CASE("a command with subcommands lists them by the first sentence of what they do") {
    CommandLine app({.does = "Does one of two things."}, "dslaunch both");
    app.subcommand("left", {.does = "Goes to the left. Nothing is in the way."});
    app.subcommand("right", {.does = "Goes to the right, if there is one."});
    CHECK(app.help() == R"(usage: dslaunch both SUBCOMMAND [options]

Does one of two things.

subcommands:
  left        goes to the left
  right       goes to the right, if there is one

options:
  -h, --help  this text
)");
}

TEST_CASE("a page as JSON has every part, and the words that an option takes") {
    CommandLine app({.does = "Does \"it\".", .examples = {"dslaunch it now"}, .docs = "docs/it.md"},
                    "dslaunch it");
    std::string how, when;
    app.add("WHEN", when, "the time").one_of({"now", "later"});
    app.add("--how NAME", how, "the way").one_of({"well", "fast"});
    CHECK(help_json(app.page()) ==
          R"({"usage": ["dslaunch it [options] [WHEN]"], "does": "Does \"it\".", "groups": [)"
          R"({"title": "arguments", "entries": [)"
          R"({"head": "WHEN", "text": "the time", "choices": ["now", "later"]}]}, )"
          R"({"title": "subcommands", "entries": []}, )"
          R"({"title": "options", "entries": [)"
          R"({"head": "--how NAME", "text": "the way", "choices": ["well", "fast"]}, )"
          R"({"head": "-h, --help", "text": "this text", "choices": []}]}], )"
          R"("examples": ["dslaunch it now"], "exit_codes": "", "docs": "docs/it.md"})");
}

TEST_CASE("the head of an option has short names first, and shows a value that may be left out") {
    CHECK(option_head("hostfile,H", "FILE") == "-H, --hostfile FILE");
    CHECK(option_head("resume", "[DIR]") == "--resume[=DIR]");
    CHECK(option_head("quiet,q", "") == "-q, --quiet");
    CHECK(option_head("S", "") == "-S");
}

TEST_CASE("a letter of several bytes takes one column") {
    const std::string word(70, 'x');
    CHECK(help_text({.does = word + " ab…cd efg"}) == "\n" + word + " ab…cd efg\n");
    CHECK(help_text({.does = word + " ab…cd efgh"}) == "\n" + word + " ab…cd\nefgh\n");
}

}  // namespace dslaunch
