#include "launcher/hosts/host_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/text/option_name.h"
#include "launch/transport/host_addresses.h"
#include "launcher/run/build_job.h"
#include "launcher/run/option_table.h"

namespace dslaunch::launcher {
namespace {

constexpr std::array kHostOptions = {"hostfile",  "include",    "exclude",
                                     "num-nodes", "launcher",   "force-multi",
                                     "ssh-port",  "ssh-config", "fanout"};
constexpr std::array kProgramOptions = {"env", "env-file", "chdir"};

bool holds(const auto& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// One option, whichever table it is from.
struct Known {
    std::vector<std::string> names;
    std::string value_name;  // empty: takes none
    std::string help;
    bool repeatable = false;
    std::function<void(const std::string&)> apply;
};

class CommandParser {
  public:
    CommandParser(std::span<const std::string> arguments, const HostCommand& command)
        : arguments_(arguments), command_(command) {
        for (const OptionRow& row : option_rows()) {
            const std::vector<std::string> names = split(row.names, ',');
            if (!holds(kHostOptions, names.front()) &&
                !(command.runs_program && holds(kProgramOptions, names.front()))) {
                continue;
            }
            const std::string value =
                row.takes == Takes::kNothing ? "" : std::string(row.value_name);
            known_.push_back(
                {names, value, std::string(row.help), row.repeatable,
                 [this, &row](const std::string& text) { row.apply(parsed_.hosts, text); }});
        }
        for (const CommandOption& option : command.options) {
            known_.push_back({{std::string(option.name)},
                              std::string(option.value_name),
                              std::string(option.help),
                              option.repeatable,
                              option.apply});
        }
    }

    ParsedCommand parse() {
        bool only_words = false;
        while (next_ < arguments_.size() && !parsed_.help) {
            const std::string& word = arguments_[next_++];
            if (only_words || word.size() < 2 || word.front() != '-') {
                parsed_.words.push_back(word);
                only_words |= command_.runs_program;
            } else if (word == "--") {
                only_words = true;
            } else if (word == "--help" || word == "-h") {
                parsed_.help = true;
            } else {
                option(word);
            }
        }
        if (parsed_.help) fmt::print("{}", help_text());
        return std::move(parsed_);
    }

  private:
    void option(const std::string& word) {
        const std::string typed = with_dashes(word);
        const size_t equals = typed.find('=');
        const std::string name = typed.substr(0, equals);
        const Known& row = find(name);
        if (!given_.insert(&row).second && !row.repeatable) {
            fail(ExitCode::kUsage, "{} is given twice", name);
        }
        std::string value;
        if (equals != std::string::npos) {
            if (row.value_name.empty()) fail(ExitCode::kUsage, "{} takes no value", name);
            value = typed.substr(equals + 1);
        } else if (!row.value_name.empty() && next_ < arguments_.size() &&
                   !arguments_[next_].starts_with("--")) {
            value = arguments_[next_++];
        }
        if (value.empty() && !row.value_name.empty()) {
            fail(ExitCode::kUsage, "{} needs a value: {} {}", name, name, row.value_name);
        }
        try {
            row.apply(value);
        } catch (const Error& error) {
            fail(ExitCode::kUsage, "{}: {}", name, error.what());
        }
    }

    const Known& find(const std::string& typed) const {
        const bool is_long = typed.starts_with("--");
        const std::string key = typed.substr(is_long ? 2 : 1);
        std::vector<std::string> long_names;
        for (const Known& row : known_) {
            for (const std::string& name : row.names) {
                if (name == key && is_long == (name.size() > 1)) return row;
                if (name.size() > 1) long_names.push_back(name);
            }
        }
        const auto guess = is_long ? nearest(key, long_names) : std::nullopt;
        fail(ExitCode::kUsage, "unknown option `{}`{}", printable(typed),
             guess ? fmt::format(", did you mean `--{}`?", *guess) : "; --help lists all");
    }

    std::string help_text() const {
        std::string text(command_.usage);
        text += "\noptions:\n";
        for (const Known& row : known_) {
            std::vector<std::string> names;
            for (const std::string& name : row.names) {
                const bool is_short = name.size() == 1;
                names.insert(is_short ? names.begin() : names.end(),
                             (is_short ? "-" : "--") + name);
            }
            std::string left = join(names, ", ");
            if (!row.value_name.empty()) left += " " + row.value_name;
            text += fmt::format("  {:<30}  {}\n", left, row.help);
        }
        return text;
    }

    std::span<const std::string> arguments_;
    const HostCommand& command_;
    std::vector<Known> known_;
    std::set<const Known*> given_;
    ParsedCommand parsed_;
    size_t next_ = 0;
};

}  // namespace

ParsedCommand parse_host_command(std::span<const std::string> arguments,
                                 const HostCommand& command) {
    return CommandParser(arguments, command).parse();
}

HostTargets find_hosts(const RunOptions& options) {
    RunOptions job = options;
    job.target = "true";
    job.device = launch::DeviceRequest::kCpu;
    BuiltJob built = build_job(job, Machine::this_one());
    print_notes(built, options);
    std::vector<launch::HostAddress> hosts = launch::addresses_of(built.spec.nodes);
    return {std::move(built.spec), std::move(hosts)};
}

}  // namespace dslaunch::launcher
