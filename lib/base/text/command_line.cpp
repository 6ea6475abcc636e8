#include "base/text/command_line.h"

#include <cstdio>
#include <optional>
#include <type_traits>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/text.h"
#include "base/text/option_name.h"

namespace dslaunch {
namespace {

// The subcommand that parsing reached.
const CLI::App& reached(const CLI::App& app) {
    const CLI::App* deepest = &app;
    while (!deepest->get_subcommands().empty()) deepest = deepest->get_subcommands().front();
    return *deepest;
}

// "config check: "
std::string place_of(const CLI::App& app) {
    std::string place = app.get_name();
    for (const CLI::App* above = app.get_parent(); above != nullptr; above = above->get_parent()) {
        place = above->get_name() + " " + place;
    }
    constexpr std::string_view kProgram = "dslaunch ";
    return place.substr(place.starts_with(kProgram) ? kProgram.size() : 0) + ": ";
}

std::vector<std::string> long_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(command->get_name());
    }
    return names;
}

std::string guess_text(const std::string& word, const std::vector<std::string>& known) {
    const auto guess = nearest(word, known);
    return guess ? fmt::format(", did you mean `{}`?", *guess) : "";
}

// Says what is wrong with a word that nothing takes.
std::string describe_extra(const CLI::App& app, const std::string& word) {
    if (word.size() > 1 && word.front() == '-') {
        const std::string name = word.substr(0, word.find('='));
        const std::string guess = guess_text(name, long_names(app));
        return fmt::format("unknown option `{}`{}", printable(name),
                           guess.empty() ? "; --help lists all" : guess);
    }
    const std::vector<std::string> commands = subcommand_names(app);
    if (commands.empty()) return fmt::format("unexpected `{}`", printable(word));
    const std::string guess = guess_text(word, commands);
    return fmt::format("`{}` is unknown{}", printable(word),
                       guess.empty() ? "; there are: " + join(commands, ", ") : guess);
}

std::string describe(const CLI::App& app, const CLI::ParseError& error) {
    const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    // A mistyped word is why another one is missing.
    if (lacks || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        const std::vector<std::string> extras = app.remaining(true);
        if (!extras.empty()) return describe_extra(app, extras.front());
    }
    const std::vector<std::string> commands = subcommand_names(app);
    if (lacks && !commands.empty()) return "which one? There are: " + join(commands, ", ");
    return printable(error.what()) + "; --help lists the options";
}

template <typename Value>
struct IsVector : std::false_type {};
template <typename Item>
struct IsVector<std::vector<Item>> : std::true_type {};

}  // namespace

Declared& Declared::required() {
    option_->required();
    return *this;
}

Declared& Declared::show_default() {
    option_->capture_default_str();
    return *this;
}

Declared& Declared::hidden() {
    option_->group("");
    return *this;
}

Declared& Declared::one_of(const std::vector<std::string>& words) {
    option_->check(CLI::IsMember(words));
    return *this;
}

Declared& Declared::at_least(int64_t least) {
    const auto check = [least](const std::string& value) {
        const auto number = parse_double(value);
        if (number && *number >= static_cast<double>(least)) return std::string();
        return fmt::format("`{}` is not a number from {} on", printable(value), least);
    };
    option_->check(CLI::Validator(check, ""));
    return *this;
}

Declared& Declared::range(int least, int most) {
    option_->check(CLI::Range(least, most));
    return *this;
}

Declared& Declared::range(int64_t least, int64_t most) {
    option_->check(CLI::Range(least, most));
    return *this;
}

Declared& Declared::range(double least, double most) {
    option_->check(CLI::Range(least, most));
    return *this;
}

Declared& Declared::positive() {
    option_->check(CLI::PositiveNumber);
    return *this;
}

Declared& Declared::needs(const std::string& option) {
    option_->needs(option);
    return *this;
}

Declared& Declared::excludes(const std::string& option) {
    option_->excludes(option);
    return *this;
}

CommandLine::CommandLine(const std::string& help, const std::string& name)
    : owned_(std::make_unique<CLI::App>(help, name)), app_(*owned_) {}

CommandLine::CommandLine(CLI::App& app) : app_(app) {}

CommandLine::~CommandLine() = default;

template <typename Value>
Declared CommandLine::add(const std::string& names, Value& value, const std::string& help) {
    if constexpr (std::is_same_v<Value, bool>) {
        return Declared(*app_.add_flag(names, value, help));
    } else {
        CLI::Option* option = app_.add_option(names, value, help);
        if constexpr (IsVector<Value>::value) option->allow_extra_args(false);
        if constexpr (IsVector<Value>::value && !std::is_same_v<Value, std::vector<std::string>>)
            option->delimiter(',');
        return Declared(*option);
    }
}

template Declared CommandLine::add(const std::string&, bool&, const std::string&);
template Declared CommandLine::add(const std::string&, int&, const std::string&);
template Declared CommandLine::add(const std::string&, int64_t&, const std::string&);
template Declared CommandLine::add(const std::string&, uint64_t&, const std::string&);
template Declared CommandLine::add(const std::string&, double&, const std::string&);
template Declared CommandLine::add(const std::string&, std::string&, const std::string&);
template Declared CommandLine::add(const std::string&, std::optional<int>&, const std::string&);
template Declared CommandLine::add(const std::string&, std::optional<int64_t>&, const std::string&);
template Declared CommandLine::add(const std::string&, std::optional<double>&, const std::string&);
template Declared CommandLine::add(const std::string&, std::optional<std::string>&,
                                   const std::string&);
template Declared CommandLine::add(const std::string&, std::vector<std::string>&,
                                   const std::string&);
template Declared CommandLine::add(const std::string&, std::vector<int>&, const std::string&);
template Declared CommandLine::add(const std::string&, std::vector<int64_t>&, const std::string&);

CommandLine& CommandLine::subcommand(const std::string& name, const std::string& help) {
    app_.require_subcommand(1);
    subcommands_.push_back(
        std::unique_ptr<CommandLine>(new CommandLine(*app_.add_subcommand(name, help))));
    return *subcommands_.back();
}

bool CommandLine::parse(const std::vector<std::string>& words) {
    std::vector<std::string> reversed;  // CLI11 wants them last first
    for (size_t i = words.size(); i > 0; --i) reversed.push_back(with_dashes(words[i - 1]));
    try {
        app_.parse(reversed);
        return true;
    } catch (const CLI::CallForHelp&) {
        std::fputs(app_.help().c_str(), stdout);
        return false;
    } catch (const CLI::ParseError& error) {
        const CLI::App& at = reached(app_);
        fail(ExitCode::kUsage, "{}{}", place_of(at), describe(at, error));
    }
}

size_t CommandLine::count(const std::string& name) const {
    return app_.count(name);
}

bool CommandLine::chose(const std::string& name) const {
    return app_.got_subcommand(name);
}

}  // namespace dslaunch
