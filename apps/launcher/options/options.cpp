#include "launcher/options/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/foreign/foreign_names.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/option_name.h"
#include "config/schema/schema.h"

namespace dslaunch::launcher {
namespace {

using OptionsByName = std::map<std::string, const Option*, std::less<>>;

bool value_is_optional(const Option& option) {
    return option.value_name.starts_with('[');
}

// Refuses a path with a `~` or a variable that the shell did not replace, as in --data=~/x.
void refuse_unexpanded(const Option& option, const std::string& typed, const std::string& value) {
    const bool is_path = option.value_name.find("FILE") != std::string_view::npos ||
                         option.value_name.find("DIR") != std::string_view::npos;
    if (!is_path) return;
    if (const std::string text = unexpanded_text(value); !text.empty())
        fail(ExitCode::kUsage, "{}: {}", typed, text);
}

// Returns the config key for the option NAME, or null if there is none. NAME may be the path of a
// key, the path of a section with a key `enabled`, or a path below `dslaunch`. NAME may also be the
// last part of a path if no other path has the same last part.
const config::KeySpec* key_named(std::string name) {
    std::ranges::replace(name, '-', '_');
    const config::KeySpec* inner = nullptr;
    for (const config::KeySpec& key : config::schema()) {
        if (key.type == config::KeyType::kObject || key.status == config::KeyStatus::kNotYet ||
            !key.same_as.empty())
            continue;
        if (key.path == name || key.path == name + ".enabled" || key.path == "dslaunch." + name)
            return &key;
        if (!key.path.ends_with("." + name)) continue;
        if (inner != nullptr) return nullptr;
        inner = &key;
    }
    return inner;
}

// If WORD begins with a typesetter's dash (U+2010 to U+2015, U+2212), returns the text after the
// dashes; otherwise nullopt. Editors, chats and web pages write such dashes instead of `-` and
// `--`.
std::optional<std::string> after_other_dash(std::string_view word) {
    const auto is_dash = [](std::string_view text) {
        return (text.starts_with("\xe2\x80") && text.size() > 2 && text[2] >= '\x90' &&
                text[2] <= '\x95') ||
               text.starts_with("\xe2\x88\x92");
    };
    if (!is_dash(word)) return std::nullopt;
    while (word.starts_with('-') || is_dash(word)) word.remove_prefix(word[0] == '-' ? 1 : 3);
    return std::string(word);
}

// Returns the subcommand that works with a text model and has the option NAME; null if there is
// none.
const char* subcommand_with(std::string_view name) {
    static constexpr std::array<std::pair<std::string_view, const char*>, 8> kOwners = {
        {{"prompt", "generate"},
         {"prompt-ids", "generate"},
         {"chat", "generate"},
         {"system", "generate"},
         {"tokens", "generate"},
         {"temperature", "generate"},
         {"port", "serve"},
         {"api-key-file", "serve"}}};
    const auto owner = std::ranges::find(kOwners, name, [](const auto& row) { return row.first; });
    return owner == kOwners.end() ? nullptr : owner->second;
}

class OptionParser {
  public:
    OptionParser(std::span<const Option> options, std::span<const std::string> arguments)
        : arguments_(arguments) {
        for (const Option& option : options)
            for (const std::string& name : split(option.names, ',')) {
                by_name_.emplace(name, &option);
                for (const std::string& other : other_names(name)) others_.emplace(other, &option);
            }
    }

    std::span<const std::string> parse(const std::function<bool(const std::string&)>& on_word) {
        bool only_words = false;
        while (next_ < arguments_.size()) {
            const std::string& word = arguments_[next_++];
            if (const auto name = only_words ? std::nullopt : after_other_dash(word)) {
                fail(ExitCode::kUsage,
                     "`{}` begins with a typographic dash, probably copied from an editor or web "
                     "page: write {}{}",
                     printable(word), name->size() > 1 ? "--" : "-", printable(*name));
            }
            if (!only_words && word.starts_with('-') && word.find("\u00a0") != std::string::npos)
                fail(
                    ExitCode::kUsage,
                    "`{}` contains a non-breaking space (U+00A0), probably copied from a web page: "
                    "write a plain blank",
                    printable(word));
            if (only_words || word.size() < 2 || word.front() != '-') {
                if (on_word(word)) break;
            } else if (word == "--") {
                only_words = true;
            } else {
                option(word);
            }
        }
        return arguments_.subspan(next_);
    }

  private:
    [[nodiscard]] const Option& find(const std::string& typed) const;
    [[nodiscard]] const Option* find_beginning(const std::string& key,
                                               const std::string& typed) const;
    void option(const std::string& word);
    std::string value_of(const Option& option, const std::string& typed);

    std::span<const std::string> arguments_;
    size_t next_ = 0;
    OptionsByName by_name_;
    OptionsByName others_;  // options by the names that other tools use
    std::set<const Option*> given_;
};

const Option& OptionParser::find(const std::string& typed) const {
    const bool is_long = typed.starts_with("--");
    const std::string key = with_dashes(typed).substr(is_long ? 2 : 1);
    const auto found = by_name_.find(key);
    if (found != by_name_.end() && is_long == (key.size() > 1)) return *found->second;
    if (const auto other = others_.find(key); is_long && other != others_.end())
        return *other->second;
    const auto has_option = [&](std::string_view name) { return by_name_.contains(name); };
    const ForeignName* const foreign = find_foreign(key, has_option);
    // Another tool's `--ep` is not the beginning of --epochs.
    const bool is_other = foreign != nullptr && key.size() <= 2;
    if (is_long && !key.empty() && !is_other) {
        if (const Option* option = find_beginning(key, typed)) return *option;
    }
    if (foreign != nullptr)
        fail(ExitCode::kUsage, "unknown option `{}`: {}", printable(typed), advice_of(*foreign));
    if (const auto off = by_name_.find(key.starts_with("no-") ? key.substr(3) : "");
        is_long && off != by_name_.end() && off->second->value_name.empty())
        fail(ExitCode::kUsage, "unknown option `{}`: leave --{} out", printable(typed), off->first);
    const config::KeySpec* const config_key =
        is_long && by_name_.contains("set") ? key_named(key) : nullptr;
    if (config_key != nullptr)
        fail(ExitCode::kUsage, "unknown option `{}`: it is a key of the config: use --set {}={}",
             printable(typed), config_key->path,
             config_key->type == config::KeyType::kBool ? "true" : "VALUE");
    if (const char* other = by_name_.contains("set") ? subcommand_with(key) : nullptr; other)
        fail(ExitCode::kUsage,
             "unknown option `{0}`: it is an option of `{1}`: dslaunch {1} MODEL {0}",
             printable(typed), other);
    std::vector<std::string> known;
    for (const auto& [name, option] : by_name_) {
        if (name.size() > 1) known.push_back(name);
    }
    const auto guess = is_long ? nearest(key, known) : std::nullopt;
    fail(ExitCode::kUsage, "unknown option `{}`{}", printable(typed),
         guess ? fmt::format(", did you mean `--{}`?", *guess) : "; --help lists all");
}

// Returns the option whose name begins with KEY; as in argparse, names may be shortened. Returns
// null if there is no such option.
const Option* OptionParser::find_beginning(const std::string& key, const std::string& typed) const {
    std::set<const Option*> options;
    std::vector<std::string> names;
    for (auto at = by_name_.lower_bound(key); at != by_name_.end() && at->first.starts_with(key);
         ++at) {
        if (options.insert(at->second).second) names.push_back("--" + at->first);
    }
    if (options.size() > 1)
        fail(ExitCode::kUsage, "`{}` is ambiguous, it may be {}: write the whole name",
             printable(typed), join(names, " or "));
    return options.empty() ? nullptr : *options.begin();
}

void OptionParser::option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string typed = word.substr(0, equals);
    const Option& option = find(typed);
    if (!option.apply) fail(ExitCode::kUsage, "{} is refused: {}", typed, option.help);
    if (!given_.insert(&option).second && !option.repeatable) {
        fail(ExitCode::kUsage, "{} is given twice", typed);
    }
    std::string value;
    if (equals != std::string::npos) {
        value = word.substr(equals + 1);
        if (option.value_name.empty())
            fail(ExitCode::kUsage, "{} takes no value{}", typed,
                 lower(value) == "false"  ? fmt::format(": leave {} out", typed)
                 : lower(value) == "true" ? fmt::format(": write {} alone", typed)
                                          : "");
        if (value.empty() && !option.may_be_empty)
            fail(ExitCode::kUsage, "{}: the value is empty", typed);
    } else if (!option.value_name.empty() && !value_is_optional(option)) {
        value = value_of(option, typed);
    }
    refuse_unexpanded(option, typed, value);
    try {
        option.apply(value);
    } catch (const Error& error) {
        fail(ExitCode::kUsage, "{}: {}", typed, error.what());
    }
}

// Returns the next word as the option's value. A word that contains a space is a value even if it
// begins like an option: --launcher_args "--mca x y".
std::string OptionParser::value_of(const Option& option, const std::string& typed) {
    const bool is_value =
        next_ < arguments_.size() && (option.may_be_empty || !arguments_[next_].empty()) &&
        (!arguments_[next_].starts_with("--") || arguments_[next_].find(' ') != std::string::npos);
    if (!is_value)
        fail(ExitCode::kUsage, "{} needs a value: {} {}{}", typed, typed, option.value_name,
             typed == "--lora" ? ", as r=16,alpha=32" : "");
    return arguments_[next_++];
}

}  // namespace

std::span<const std::string> parse_options(
    std::span<const Option> options, std::span<const std::string> arguments,
    const std::function<bool(const std::string& word)>& on_word) {
    return OptionParser(options, arguments).parse(on_word);
}

std::vector<HelpGroup> option_groups(std::span<const Option> options) {
    std::vector<HelpGroup> groups;
    for (const Option& option : options) {
        auto group = std::ranges::find(groups, option.group, &HelpGroup::title);
        if (group == groups.end())
            group = groups.insert(group, HelpGroup{std::string(option.group), {}});
        HelpEntry entry{option_head(option.names, option.value_name), std::string(option.help)};
        if (!option.choices.empty()) entry.choices = split(option.choices, '|');
        group->entries.push_back(std::move(entry));
    }
    return groups;
}

}  // namespace dslaunch::launcher
