// A command line with words, options and subcommands, as CLI11 parses them. dslaunch and dsworker
// both declare their command lines with CommandLine, so that errors are reported in one place and
// only command_line.cpp compiles CLI11. No threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/text/help_page.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dslaunch {

// One declared word or option. Valid as long as its CommandLine. Each function returns *this.
class Declared {
  public:
    // CHOICES receives the words of one_of(), so that the help can list them.
    Declared(CLI::Option& option, std::vector<std::string>& choices)
        : option_(&option), choices_(&choices) {}

    Declared& required();
    Declared& show_default();  // the help shows the value that the variable has now
    Declared& hidden();        // not in the help
    // Restrict the value: parsing throws Error{kUsage} for any other value. LEAST and MOST
    // themselves are allowed.
    Declared& one_of(const std::vector<std::string>& words);
    Declared& at_least(int64_t least);
    Declared& range(int least, int most);
    Declared& range(int64_t least, int64_t most);
    Declared& range(double least, double most);
    Declared& positive();
    Declared& needs(const std::string& option);     // OPTION ("--tensor") must be given too
    Declared& excludes(const std::string& option);  // OPTION ("--compare") must not be given too

  private:
    CLI::Option* option_;
    std::vector<std::string>* choices_;
};

// The declarations of one command, or of a subcommand that its parent owns, and their parser.
class CommandLine {
  public:
    // NAME: the name as it is typed, "dslaunch ps". HELP: the page that --help prints together with
    // the options.
    CommandLine(HelpPage help, const std::string& name);
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;
    ~CommandLine();

    // Declares a word ("PATH") or an option ("-t,--tag NAME"; the help shows NAME as its value).
    // Parsing writes VALUE if the word or option is given; VALUE must outlive parse(). A bool is a
    // flag ("!--no-check" sets it to false). An option whose VALUE is a vector may be given several
    // times, and numbers may also be separated by commas. VALUE is a bool, int, int64_t, uint64_t,
    // double or std::string, an optional int, int64_t, double or std::string, or a vector of int,
    // int64_t or std::string.
    template <typename Value>
    Declared add(const std::string& declaration, Value& value, const std::string& help = "");

    // Lists the options declared after this call under TITLE in the help, and not under "options".
    void group(const std::string& title);

    // Adds a subcommand. From then on one of the subcommands must be given.
    CommandLine& subcommand(const std::string& name, HelpPage help);

    // Parses WORDS, the words that follow this command's name. `-` and `_` are equivalent in the
    // names of options. For --help, prints the page to stdout and returns false. Throws
    // Error{kUsage}, whose message begins with the subcommand, if a word is missing, bad or extra,
    // or if an option or subcommand is unknown; the message then suggests the nearest name.
    // REQUIRES: this is not a subcommand.
    [[nodiscard]] bool parse(const std::vector<std::string>& words);

    // Returns the page that --help prints: everything declared that is not hidden.
    [[nodiscard]] HelpPage page() const;
    [[nodiscard]] std::string help() const { return help_text(page()); }

    // After parse(), count() returns how many times "--NAME" was given, and chose() returns true if
    // subcommand NAME was given.
    [[nodiscard]] size_t count(const std::string& name) const;
    [[nodiscard]] bool chose(const std::string& name) const;

  private:
    CommandLine(CLI::App& app, HelpPage help);
    [[nodiscard]] const CommandLine& reached() const;
    [[nodiscard]] std::string name() const;

    std::unique_ptr<CLI::App> owned_;  // null for a subcommand, whose App its parent owns
    CLI::App& app_;
    HelpPage help_;
    std::string group_ = "options";
    std::map<const CLI::Option*, std::vector<std::string>> choices_;  // see Declared::one_of()
    std::vector<std::unique_ptr<CommandLine>> subcommands_;
};

// Returns advice if VALUE, which should be a number, is a number with a unit, a percent sign, a
// date or a word: "; its dash is not a minus sign: …". Otherwise returns an empty text.
[[nodiscard]] std::string foreign_number_advice(const std::string& value);

// Returns "; write 10" if VALUE is a whole number from LEAST to MOST in another spelling, such as
// 1e1. Otherwise returns an empty text.
[[nodiscard]] std::string plain_advice(const std::string& value, int64_t least, int64_t most);

// Returns "; give the time in seconds: 600" for a time with a unit, such as 10m or 1h30m, or for
// 00:10:00. Returns an empty text for anything else.
[[nodiscard]] std::string seconds_advice(const std::string& value);

}  // namespace dslaunch
