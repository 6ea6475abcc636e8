#include "base/text/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/foreign/foreign_names.h"
#include "base/text.h"
#include "base/text/option_name.h"

namespace dslaunch {
namespace {

constexpr const char* kArguments = "arguments";

// Returns the prefix of an error message: for "dslaunch config check" it is "config check: ".
std::string place_of(std::string_view name) {
    for (const std::string_view program : {"dslaunch ", "dsworker "})
        if (name.starts_with(program)) name.remove_prefix(program.size());
    return std::string(name) + ": ";
}

std::vector<std::string> long_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames())
            if (!is_other_name(name)) names.push_back("--" + name);
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

// Returns a hint, such as "; did you mean --data WORD?", for a WORD that was given without an
// option; "" if APP has no option that fits.
std::string meant_text(const CLI::App& app, const std::string& word) {
    if (app.get_option_no_throw("--data") != nullptr && ::access(word.c_str(), F_OK) == 0)
        return fmt::format("; did you mean --data {}?", printable(word));
    if (app.get_option_no_throw("--adapter") != nullptr && ::access(word.c_str(), F_OK) == 0)
        return fmt::format("; only one model is used; if this is an adapter, write --adapter {}",
                           printable(word));
    if (app.get_option_no_throw("--row") != nullptr && parse_int(word))
        return fmt::format("; did you mean --row {}?", word);
    for (const char* option : {"--prompt", "--hostfile"})
        if (app.get_option_no_throw(option) != nullptr)
            return fmt::format("; did you mean {} VALUE? A text of several words needs quotes",
                               option);
    const bool has_words = std::ranges::any_of(
        app.get_options(), [](const CLI::Option* option) { return option->get_positional(); });
    return has_words ? "" : "; this command accepts only options; --help lists them";
}

// Returns a message that explains the unknown word WORD of the command NAME, "dslaunch config".
std::string describe_extra(const CLI::App& app, const std::string& name, const std::string& word) {
    if (word.size() > 1 && word.front() == '-') {
        const std::string typed = word.substr(0, word.find('='));
        const auto has_option = [&](std::string_view option) {
            return app.get_option_no_throw(fmt::format("--{}", option)) != nullptr;
        };
        const std::string_view bare =
            std::string_view(typed).substr(std::min(typed.find_first_not_of('-'), typed.size()));
        if (const ForeignName* foreign = find_foreign(bare, has_option); foreign != nullptr)
            return fmt::format("unknown option `{}`: {}", printable(typed), advice_of(*foreign));
        const std::vector<std::string> known = long_names(app);
        // If an option's name begins with the given name, suggests this option: for `--api-key`,
        // suggests `--api-key-file`. Otherwise suggests the option with the nearest name. A given
        // name of one or two letters must be followed by `-` in the option's name, because too many
        // words begin with the same two letters.
        const auto longer = std::ranges::find_if(known, [&](const std::string& other) {
            return other.starts_with(typed + "-") || (bare.size() > 2 && other.starts_with(typed));
        });
        const std::string guess = longer == known.end()
                                      ? guess_text(typed, known)
                                      : fmt::format(", did you mean `{}`?", *longer);
        return fmt::format("unknown option `{}`{}", printable(typed),
                           guess.empty() ? "; --help lists all" : guess);
    }
    const std::vector<std::string> commands = subcommand_names(app);
    if (commands.empty())
        return fmt::format("unexpected `{}`{}", printable(word), meant_text(app, word));
    if (const std::string_view here = foreign_subcommand(name, word); !here.empty())
        return fmt::format("`{}` is unknown: {}", printable(word), here);
    const std::string guess = guess_text(word, commands);
    return fmt::format("`{}` is unknown{}", printable(word),
                       guess.empty() ? "; there are: " + join(commands, ", ") : guess);
}

// Returns the word, such as `-hf`, that CLI11 read as `-h` followed by other one-letter options;
// null if WORDS contain `-h` or `--help`.
const std::string* joined_help(const std::vector<std::string>& words) {
    const std::string* joined = nullptr;
    for (const std::string& word : words) {
        if (word == "-h" || word == "--help") return nullptr;
        if (word.size() > 2 && word.starts_with("-h")) joined = &word;
    }
    return joined;
}

// Returns "0.1 to 3600" for "0.100000 to 3600.000000".
std::string short_numbers(const std::string& range) {
    std::vector<std::string> words = split(range, ' ');
    for (std::string& word : words)
        if (const auto number = parse_double(word); number && word.find('.') != word.npos)
            word = fmt::format("{:g}", *number);
    if (words.size() == 3 && words[2] == fmt::format("{:g}", DBL_MAX)) return words[0] + " upwards";
    return join(words, " ");
}

// Rewords CLI11's messages for values out of range: "--weights: q4_0 not in {f32,bf16}" and
// "--port: Value 99999 not in range 0 to 65535".
std::string plain_words(const std::string& what) {
    const size_t colon = what.find(": ");
    if (colon == what.npos) return what;
    const std::string option = what.substr(0, colon);
    std::string rest = what.substr(colon + 2);
    if (const size_t in = rest.find(" not in {"); in != rest.npos && rest.ends_with('}')) {
        const std::string list = rest.substr(in + 9, rest.size() - in - 10);
        const std::string value = rest.substr(0, in);
        const std::vector<std::string> known = split(list, ',');
        const std::string own = foreign_value(value, known);
        return fmt::format("{}: `{}` is none of {}{}", option, value, join(known, ", "),
                           own.empty() ? guess_text(value, known) : ": use " + own);
    }
    // CLI11 checked the range before, so a number was given where a whole one is wanted.
    if (const size_t is = rest.find(" = "); option == "Could not convert" && is != rest.npos) {
        const std::string value = rest.substr(is + 3);
        return fmt::format(
            "{}: `{}` is not a whole number{}", rest.substr(0, is), value,
            parse_double(value) ? plain_advice(value, 0, INT64_MAX) : foreign_number_advice(value));
    }
    if (rest.starts_with("At Most 1 required but received ")) return option + " is given twice";
    const size_t range = rest.find(" not in range ");
    if (rest.starts_with("Value ") && range != rest.npos) {
        const std::string value = rest.substr(6, range - 6);
        return fmt::format("{}: `{}` is not a number from {}{}", option, value,
                           short_numbers(rest.substr(range + 14)),
                           parse_double(value) ? "" : foreign_number_advice(value));
    }
    return what;
}

// Returns "--model and --tokenizer mean the same: give one of them" if WORDS give OPTION under two
// names; else an empty text.
std::string same_option_text(const CLI::App& app, const std::string& option,
                             const std::vector<std::string>& words) {
    const CLI::Option* const known = app.get_option_no_throw(option);
    if (known == nullptr) return "";
    std::vector<std::string> typed;
    for (const std::string& word : words) {
        const std::string name = with_dashes(word.substr(0, word.find('=')));
        if (name.starts_with("-") && known->check_name(name) &&
            std::ranges::find(typed, name) == typed.end())
            typed.push_back(name);
    }
    if (typed.size() < 2) return "";
    return fmt::format("{} and {} mean the same: give one of them", typed[0], typed[1]);
}

// Returns the usage without the command's name: "-o FILE [options] MODEL.pt".
std::string usage_of(const CLI::App& app) {
    std::string required, words;
    bool has_options = false;
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_positional()) {
            const std::string word =
                option->get_name(true) + (option->get_items_expected_max() > 1 ? "..." : "");
            words += option->get_required() ? " " + word : fmt::format(" [{}]", word);
        } else if (option->get_required()) {
            const std::string name = option->get_snames().empty()
                                         ? "--" + option->get_lnames().front()
                                         : "-" + option->get_snames().front();
            required += fmt::format(" {} {}", name, option->get_type_name());
        } else if (option != app.get_help_ptr()) {
            has_options = true;
        }
    }
    if (!subcommand_names(app).empty()) words += " SUBCOMMAND [options]";
    return required + (has_options ? " [options]" : "") + words;
}

// Returns the message for ERROR. NAME: "dslaunch config check".
std::string describe(const CLI::App& app, const std::string& name, const CLI::ParseError& error) {
    const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    // A required word can seem to be missing because another word is mistyped. In this case the
    // mistyped word is reported.
    if (lacks || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        const std::vector<std::string> extras = app.remaining(true);
        if (!extras.empty()) return describe_extra(app, name, extras.front());
    }
    const std::vector<std::string> commands = subcommand_names(app);
    if (lacks && !commands.empty())
        return "a subcommand is missing; use one of: " + join(commands, ", ");
    std::string what = printable(error.what());
    // CLI11's message is "--output: 1 required FILE missing".
    const size_t colon = what.find(": 1 required ");
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && colon != what.npos)
        return what.substr(0, colon) + " needs a value; --help lists the options";
    if (lacks)
        return fmt::format("{}: {}{}; --help lists the options", plain_words(what), name,
                           usage_of(app));
    return plain_words(what) + "; --help lists the options";
}

// Returns "; 0: from all" if OPTION's help says so, or the default, for a user who gave a number
// that is too small because another program has such a value for `off` or `random`.
std::string special_value_text(const CLI::Option& option) {
    const std::string help = option.get_description();
    if (const size_t begin = help.find("; 0: "); begin != help.npos)
        return help.substr(begin, help.find(';', begin + 1) - begin);
    const std::string usual = option.get_default_str();
    return usual.empty() ? "" : fmt::format("; for the default, {}, leave the option out", usual);
}

// Refuses an option that was given with an empty value, unless its help says what `empty:` means.
void refuse_empty(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options())
        if (!option->get_positional() && option->count() > 0 &&
            option->get_items_expected_max() > 0 && std::ranges::count(option->results(), "") > 0 &&
            option->get_description().find("empty: ") == std::string::npos)
            fail(ExitCode::kUsage,
                 "{}: the value is empty; if it comes from a shell variable, the variable is not "
                 "set",
                 option->get_name());
}

// Returns "-o, --output DIR" for an option, or the name of a positional word.
std::string head_of(const CLI::Option& option) {
    if (option.get_positional()) return option.get_name(true);
    std::vector<std::string> names = option.get_snames();
    for (const std::string& name : option.get_lnames())
        if (!is_other_name(name)) names.push_back(name);
    return option_head(join(names, ","), option.get_items_expected_max() == 0
                                             ? std::string()
                                             : option.get_type_name());
}

// Returns the help text of OPTION, with its default if show_default() was called.
std::string option_text(const CLI::Option& option) {
    std::string value = option.get_default_str();
    if (value.empty()) return option.get_description();
    if (value.front() == '[') value = value.substr(1, value.size() - 2);  // a vector's value
    return fmt::format("{}, default {}", option.get_description(), value);
}

HelpGroup& group_of(std::vector<HelpGroup>& groups, const std::string& title) {
    for (HelpGroup& group : groups)
        if (group.title == title) return group;
    return groups.emplace_back(HelpGroup{title, {}});
}

// Returns the names that other tools use for the option with NAMES, in the form ",--max-tokens".
std::string other_names_of(const std::string& names) {
    std::string others;
    for (const std::string& name : split(names, ',')) {
        if (!name.starts_with("--")) continue;
        for (const std::string& other : other_names(name.substr(2))) others += ",--" + other;
    }
    return others;
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
    option_->check(CLI::IsMember(words).description(""));
    *choices_ = words;
    return *this;
}

Declared& Declared::at_least(int64_t least) {
    const auto check = [least, option = option_](const std::string& value) {
        const auto number = parse_double(value);
        if (number && *number >= static_cast<double>(least)) return std::string();
        return fmt::format("`{}` is not a number from {} upwards{}", printable(value), least,
                           number ? special_value_text(*option) : foreign_number_advice(value));
    };
    option_->check(CLI::Validator(check, ""));
    return *this;
}

Declared& Declared::range(int least, int most) {
    option_->check(CLI::Range(least, most).description(""));
    return *this;
}

Declared& Declared::range(int64_t least, int64_t most) {
    option_->check(CLI::Range(least, most).description(""));
    return *this;
}

Declared& Declared::range(double least, double most) {
    option_->check(CLI::Range(least, most).description(""));
    return *this;
}

Declared& Declared::positive() {
    option_->check(CLI::Validator(CLI::PositiveNumber).description(""));
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

CommandLine::CommandLine(HelpPage help, const std::string& name)
    : owned_(std::make_unique<CLI::App>("", name)), app_(*owned_), help_(std::move(help)) {
    app_.set_help_flag("-h,--help", "this text");
}

CommandLine::CommandLine(CLI::App& app, HelpPage help) : app_(app), help_(std::move(help)) {
    app_.set_help_flag("-h,--help", "this text");
}

CommandLine::~CommandLine() = default;

template <typename Value>
Declared CommandLine::add(const std::string& declaration, Value& value, const std::string& help) {
    const size_t space = std::min(declaration.find(' '), declaration.size());
    std::string names = declaration.substr(0, space);
    if constexpr (!std::is_same_v<Value, bool>) names += other_names_of(names);
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<Value, bool>) {
        option = app_.add_flag(names, value, help);
    } else {
        option = app_.add_option(names, value, help);
        if (space < declaration.size()) option->type_name(declaration.substr(space + 1));
        if constexpr (IsVector<Value>::value) option->allow_extra_args(option->get_positional());
        if constexpr (IsVector<Value>::value && !std::is_same_v<Value, std::vector<std::string>>)
            option->delimiter(',');
    }
    option->group(option->get_positional() ? kArguments : group_);
    return {*option, choices_[option]};
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

void CommandLine::group(const std::string& title) {
    group_ = title;
}

CommandLine& CommandLine::subcommand(const std::string& name, HelpPage help) {
    app_.require_subcommand(1);
    subcommands_.push_back(
        std::unique_ptr<CommandLine>(new CommandLine(*app_.add_subcommand(name), std::move(help))));
    return *subcommands_.back();
}

// Returns the innermost subcommand that was parsed.
const CommandLine& CommandLine::reached() const {
    for (const auto& one : subcommands_)
        if (app_.got_subcommand(&one->app_)) return one->reached();
    return *this;
}

// Returns the full name, "dslaunch config check".
std::string CommandLine::name() const {
    std::string name = app_.get_name();
    for (const CLI::App* above = app_.get_parent(); above != nullptr; above = above->get_parent())
        name = above->get_name() + " " + name;
    return name;
}

HelpPage CommandLine::page() const {
    HelpPage page = help_;
    if (page.usage.empty()) page.usage = {name() + usage_of(app_)};
    std::vector<HelpGroup> groups = {{kArguments, {}}, {"subcommands", {}}, {"options", {}}};
    for (const auto& one : subcommands_)
        groups[1].entries.push_back({one->app_.get_name(), brief_of(one->help_)});
    for (const CLI::Option* option : app_.get_options()) {
        if (option == app_.get_help_ptr() || option->get_group().empty()) continue;
        group_of(groups, option->get_group())
            .entries.push_back({head_of(*option), option_text(*option), choices_.at(option)});
    }
    groups[2].entries.push_back({head_of(*app_.get_help_ptr()), "this text"});
    page.groups = std::move(groups);
    return page;
}

bool CommandLine::parse(const std::vector<std::string>& words) {
    std::vector<std::string> reversed;  // CLI11 expects the last word first
    for (size_t i = words.size(); i > 0; --i) reversed.push_back(with_dashes(words[i - 1]));
    try {
        app_.parse(reversed);
        refuse_empty(reached().app_);
        return true;
    } catch (const CLI::CallForHelp&) {
        if (const std::string* joined = joined_help(words); joined != nullptr)
            fail(ExitCode::kUsage, "{}{}", place_of(reached().name()),
                 describe_extra(reached().app_, reached().name(), *joined));
        print_help(reached().page());
        return false;
    } catch (const CLI::ParseError& error) {
        const CommandLine& at = reached();
        std::string what = describe(at.app_, at.name(), error);
        if (const size_t twice = what.find(" is given twice"); twice != what.npos)
            if (std::string same = same_option_text(at.app_, what.substr(0, twice), words);
                !same.empty())
                what = std::move(same);
        fail(ExitCode::kUsage, "{}{}", place_of(at.name()), what);
    }
}

size_t CommandLine::count(const std::string& name) const {
    return app_.count(name);
}

bool CommandLine::chose(const std::string& name) const {
    return app_.got_subcommand(name);
}

std::string foreign_number_advice(const std::string& value) {
    for (const char* dash : {"\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212"})
        if (value.find(dash) != std::string::npos)
            return "; its dash is not a minus sign: type `-`";
    const std::string word = lower(value);
    for (const char* other : {"all", "none", "auto", "default", "max", "random", "true", "false"})
        if (word == other) return "; for the default, leave the option out";
    if (value.find_first_of(",_") != std::string::npos) {
        const std::vector<std::string> parts = split(value, ',');
        const bool is_list = std::ranges::all_of(parts, [](const std::string& part) {
            return parse_double(part) && part.find_first_of(".e") != std::string::npos;
        });
        return parts.size() > 1 && is_list
                   ? "; give one number"
                   : "; write numbers with a decimal point and without thousands separators: "
                     "2.5e-4, 1000";
    }
    if (value.ends_with('%'))
        return "; a percentage is not accepted: give the number itself, which for a share is from "
               "0 to 1";
    std::string digits = value;
    std::erase(digits, '-');
    if (digits.size() + 2 == value.size() && digits.size() == 8 && parse_int(digits))
        return fmt::format("; write one number: {}", digits);
    const size_t end = value.find_first_not_of("0123456789.");
    if (end == std::string::npos || end == 0) return "";
    const std::string number = value.substr(0, end), unit = value.substr(end);
    if (!parse_double(number)) return "";
    if (lower(unit) == "k" && parse_int(number))
        return fmt::format("; write {}000, or a power of two, without the {}", number, unit);
    for (const char* time : {"s", "m", "h", "d", "sec", "min"})
        if (unit == time) return "; this is a plain number (of steps, rows or tokens), not a time";
    const bool is_word =
        std::ranges::all_of(unit, [](unsigned char c) { return std::isalpha(c) != 0; });
    return is_word ? fmt::format("; write the number alone, without {}", unit) : "";
}

std::string plain_advice(const std::string& value, int64_t least, int64_t most) {
    constexpr double kExactMax = 9e15;
    const auto other = parse_double(value);
    if (!other || !(std::abs(*other) < kExactMax) || std::floor(*other) != *other) return "";
    const auto whole = static_cast<int64_t>(*other);
    return whole < least || whole > most ? "" : fmt::format("; write {}", whole);
}

std::string seconds_advice(const std::string& value) {
    double seconds = 0;
    const std::vector<std::string> parts = split(value, ':');
    if (parts.size() == 2 || parts.size() == 3) {
        for (const std::string& part : parts) {
            const auto number = parse_int(part);
            if (!number || *number < 0) return "";
            seconds = seconds * 60 + static_cast<double>(*number);
        }
    } else {
        std::string digits;
        bool has_unit = false;
        for (const char c : lower(value)) {
            const double unit = c == 's'   ? 1
                                : c == 'm' ? 60
                                : c == 'h' ? 3600
                                : c == 'd' ? 86'400
                                           : 0;
            if (unit == 0) {
                digits += c;
                continue;
            }
            const auto number = parse_double(digits);
            if (!number || !(*number >= 0)) return "";
            seconds += *number * unit;
            digits.clear();
            has_unit = true;
        }
        if (!has_unit || !digits.empty()) return "";
    }
    return fmt::format("; give the time in seconds: {}", seconds);
}

}  // namespace dslaunch
