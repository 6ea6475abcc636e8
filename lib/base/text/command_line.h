// A command line with its own grammar: words, options and subcommands, as CLI11 parses them. Both
// programs declare theirs here, so that one place reports what is wrong with a line and only
// command_line.cpp compiles CLI11. No threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/text/help_page.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dslaunch {

// One declared word or option. Valid while its CommandLine is. Each function returns *this.
class Declared {
  public:
    explicit Declared(CLI::Option& option) : option_(&option) {}

    Declared& required();
    Declared& show_default();  // the help shows the value that the variable has now
    Declared& hidden();        // not in the help
    Declared& one_of(const std::vector<std::string>& words);
    Declared& at_least(int64_t least);
    Declared& range(int least, int most);
    Declared& range(int64_t least, int64_t most);
    Declared& range(double least, double most);
    Declared& positive();
    Declared& needs(const std::string& option);     // "--tensor"; both must be given
    Declared& excludes(const std::string& option);  // "--compare"; one of them at most

  private:
    CLI::Option* option_;
};

class CommandLine {
  public:
    // NAME: as it is typed, "dslaunch ps". HELP: the page that --help prints with the options.
    CommandLine(HelpPage help, const std::string& name);
    CommandLine(const CommandLine&) = delete;
    CommandLine& operator=(const CommandLine&) = delete;
    ~CommandLine();

    // "PATH" is a word, "-t,--tag NAME" an option with the name of its value in the help; VALUE is
    // written when it is given, and must outlive parse(). A bool is a flag ("!--no-check" sets it
    // to false); a vector takes the option again and again, and numbers in one word with commas.
    // Values: bool, int, int64_t, uint64_t, double, std::string, std::optional of the signed
    // numbers and of std::string, vectors of std::string, int and int64_t.
    template <typename Value>
    Declared add(const std::string& declaration, Value& value, const std::string& help = "");

    // Lists the options that follow under TITLE in the help, not under "options".
    void group(const std::string& title);

    // Adds a subcommand. The command line must then choose one of its subcommands.
    CommandLine& subcommand(const std::string& name, HelpPage help);

    // Parses WORDS (without the names of program and subcommand); `-` and `_` are alike in the
    // names of options. Returns false after --help, which is then printed to stdout. Throws
    // Error{kUsage} that begins with the subcommand: an unknown option or subcommand (with the
    // nearest), a missing or bad value, a word too many. REQUIRES: not a subcommand().
    [[nodiscard]] bool parse(const std::vector<std::string>& words);

    // Returns the page that --help prints: everything declared that is not hidden.
    [[nodiscard]] std::string help() const;

    // Returns, after parse(), how often "--NAME" was given, and whether subcommand NAME was.
    [[nodiscard]] size_t count(const std::string& name) const;
    [[nodiscard]] bool chose(const std::string& name) const;

  private:
    CommandLine(CLI::App& app, HelpPage help);
    [[nodiscard]] const CommandLine& reached() const;
    [[nodiscard]] std::string name() const;

    std::unique_ptr<CLI::App> owned_;  // empty: a subcommand's, which its parent owns
    CLI::App& app_;
    HelpPage help_;
    std::string group_ = "options";
    std::vector<std::unique_ptr<CommandLine>> subcommands_;
};

}  // namespace dslaunch
