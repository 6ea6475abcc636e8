#include "launcher/run/run_options.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/text/option_name.h"
#include "launcher/run/option_table.h"

namespace dslaunch::launcher {
namespace {

std::map<std::string, const OptionRow*, std::less<>> rows_by_name() {
    std::map<std::string, const OptionRow*, std::less<>> rows;
    for (const OptionRow& row : option_rows()) {
        for (const std::string& name : split(row.names, ',')) rows.emplace(name, &row);
    }
    return rows;
}

class Parser {
  public:
    Parser(std::span<const std::string> arguments, std::string_view command)
        : arguments_(arguments), command_(command) {
        options_.target = command;
        options_.no_python = !command.empty();
    }

    RunOptions parse();

  private:
    void option(const std::string& argument);
    const OptionRow& find(const std::string& typed) const;
    std::string value_of(const OptionRow& row, const std::string& typed);
    void positional(const std::string& argument);
    void check() const;
    void settle_device();

    std::span<const std::string> arguments_;
    std::string_view command_;  // that takes these options and no target; empty: run
    size_t next_ = 0;
    RunOptions options_;
    std::map<std::string, const OptionRow*, std::less<>> rows_ = rows_by_name();
    std::set<const OptionRow*> given_;
};

RunOptions Parser::parse() {
    bool only_positional = false;
    while (next_ < arguments_.size()) {
        const std::string& argument = arguments_[next_++];
        const bool is_option = argument.size() > 1 && argument[0] == '-' && !only_positional;
        if (is_option && argument == "--") {
            only_positional = true;
        } else if (is_option) {
            option(argument);
        } else {
            positional(argument);
        }
    }
    check();
    settle_device();
    return std::move(options_);
}

// deepspeed and torchrun write `_`, most other programs `-`: names are compared with `-`.
const OptionRow& Parser::find(const std::string& typed) const {
    const bool is_long = typed.starts_with("--");
    const std::string key = with_dashes(typed).substr(is_long ? 2 : 1);
    const auto found = rows_.find(key);
    if (found != rows_.end() && is_long == (key.size() > 1)) return *found->second;
    std::vector<std::string> known;
    for (const auto& [text, row] : rows_) {
        if (text.size() > 1) known.push_back(text);
    }
    const auto guess = is_long ? nearest(key, known) : std::nullopt;
    fail(ExitCode::kUsage, "unknown option `{}`{}", printable(typed),
         guess ? fmt::format(", did you mean `--{}`?", *guess) : "; see dslaunch run --help");
}

void Parser::option(const std::string& argument) {
    const size_t equals = argument.find('=');
    const std::string typed = argument.substr(0, equals);
    const OptionRow& row = find(typed);
    if (row.group == Group::kRefused) fail(ExitCode::kUsage, "{} is refused: {}", typed, row.help);
    if (!given_.insert(&row).second && !row.repeatable) {
        fail(ExitCode::kUsage, "{} is given twice", typed);
    }
    std::string value;
    if (equals != std::string::npos) {
        if (row.takes == Takes::kNothing) fail(ExitCode::kUsage, "{} takes no value", typed);
        value = argument.substr(equals + 1);
        if (value.empty()) fail(ExitCode::kUsage, "{}: the value is empty", typed);
    } else if (row.takes == Takes::kValue) {
        value = value_of(row, typed);
    }
    if (row.group == Group::kTraining && options_.first_training_option.empty()) {
        options_.first_training_option = typed;
    }
    try {
        row.apply(options_, value);
    } catch (const Error& error) {
        fail(ExitCode::kUsage, "{}: {}", typed, error.what());
    }
}

std::string Parser::value_of(const OptionRow& row, const std::string& typed) {
    if (next_ == arguments_.size() || arguments_[next_].empty() ||
        arguments_[next_].starts_with("--")) {
        fail(ExitCode::kUsage, "{} needs a value: {} {}", typed, typed, row.value_name);
    }
    return arguments_[next_++];
}

void Parser::positional(const std::string& argument) {
    if (!command_.empty()) {
        fail(ExitCode::kUsage, "dslaunch {} takes no `{}`; see dslaunch {} --help", command_,
             printable(argument), command_);
    }
    if (!options_.target.empty()) {
        fail(ExitCode::kUsage, "unexpected `{}` after the model {}", printable(argument),
             printable(options_.target));
    }
    if (argument.empty()) fail(ExitCode::kUsage, "the target is an empty word");
    options_.target = argument;
    if (target_kind_of(options_) == launch::TargetKind::kTorchScript) return;
    options_.arguments.assign(arguments_.begin() + static_cast<std::ptrdiff_t>(next_),
                              arguments_.end());
    next_ = arguments_.size();
}

// --device and --set dslaunch.device=… mean the same: one of them decides, and hosts are chosen
// accordingly. Two that say different things are a mistake.
void Parser::settle_device() {
    constexpr std::string_view kKey = "dslaunch.device=";
    for (const std::string& assignment : options_.set) {
        if (!assignment.starts_with(kKey)) continue;
        std::string value = assignment.substr(kKey.size());
        std::erase(value, '"');
        const launch::DeviceRequest asked = value == "cpu"    ? launch::DeviceRequest::kCpu
                                            : value == "cuda" ? launch::DeviceRequest::kCuda
                                                              : launch::DeviceRequest::kAuto;
        if (asked == launch::DeviceRequest::kAuto) continue;
        if (options_.device != launch::DeviceRequest::kAuto && options_.device != asked) {
            fail(ExitCode::kUsage,
                 "--set {} contradicts --device {} or another --set; give one of them",
                 printable(assignment),
                 options_.device == launch::DeviceRequest::kCpu ? "cpu" : "cuda");
        }
        options_.device = asked;
    }
}

void Parser::check() const {
    const RunOptions& o = options_;
    if (o.help || o.version) return;
    if (o.target.empty()) {
        fail(ExitCode::kUsage,
             "no target: give a model (train.pt), a Python script or a program; see dslaunch "
             "--help");
    }
    const launch::TargetKind kind = target_kind_of(o);
    if (kind != launch::TargetKind::kTorchScript && !o.first_training_option.empty()) {
        fail(
            ExitCode::kUsage,
            "{} is for a .pt target and means nothing for `{}`; write it after the target if it is "
            "the program's own",
            o.first_training_option, printable(o.target));
    }
    if (kind == launch::TargetKind::kTorchScript && (o.module || o.no_python)) {
        fail(ExitCode::kUsage, "--{} cannot be given for a .pt target",
             o.module ? "module" : "no_python");
    }
    if (o.module && o.no_python)
        fail(ExitCode::kUsage, "--module and --no_python exclude each other");
    if (o.json && !o.dry_run) fail(ExitCode::kUsage, "--json needs --dry-run");
    if (o.standalone && !o.hostfile.empty())
        fail(ExitCode::kUsage, "--standalone and --hostfile exclude each other");
    if (o.node_rank.value_or(0) > 0 && !o.no_ssh) {
        fail(ExitCode::kUsage,
             "--node_rank {}: run dslaunch once, on one machine: it starts every node itself; or "
             "give --no_ssh on every node",
             *o.node_rank);
    }
    if (o.binding.mode == launch::BindMode::kNone && !o.binding.core_list.empty()) {
        fail(ExitCode::kUsage, "--bind none and --bind_core_list exclude each other");
    }
    if (o.force_multi && o.launcher == "local") {
        fail(ExitCode::kUsage, "--force_multi and --launcher local exclude each other");
    }
}

constexpr std::pair<Group, std::string_view> kTitles[] = {
    {Group::kHosts, "Hosts"},
    {Group::kTarget, "Target"},
    {Group::kTraining, "Training (for a .pt target; these may also follow it)"},
    {Group::kEnvironment, "Environment"},
    {Group::kReport, "Output"},
    {Group::kTorchrun, "As torchrun writes it (no --local_rank=N is added then)"},
    {Group::kRefused, "Known but refused"},
};

// "  -H, --hostfile FILE"
std::string usage_of(const OptionRow& row) {
    std::vector<std::string> names;
    for (const std::string& name : split(row.names, ',')) {
        const bool is_short = name.size() == 1;
        names.insert(is_short ? names.begin() : names.end(), (is_short ? "-" : "--") + name);
    }
    std::string text = "  " + join(names, ", ");
    if (row.takes == Takes::kValue && !row.value_name.empty())
        text += fmt::format(" {}", row.value_name);
    if (row.takes == Takes::kOptionalValue) text += fmt::format("[={}]", row.value_name);
    return text;
}

void append_wrapped(std::string& text, std::string_view help) {
    constexpr size_t kColumn = 34;
    constexpr size_t kWidth = 100;
    const size_t line_start = text.rfind('\n') + 1;
    size_t column = text.size() - line_start;
    if (column + 2 > kColumn) {
        text += '\n';
        column = 0;
    }
    text.append(kColumn - column, ' ');
    column = kColumn;
    for (const std::string& word : split(help, ' ')) {
        if (column > kColumn && column + 1 + word.size() > kWidth) {
            text += '\n' + std::string(kColumn, ' ');
            column = kColumn;
        }
        if (column > kColumn) text += ' ';
        column += word.size() + (column > kColumn ? 1 : 0);
        text += word;
    }
    text += '\n';
}

}  // namespace

launch::TargetKind target_kind_of(const RunOptions& options) {
    if (options.target.ends_with(".pt")) return launch::TargetKind::kTorchScript;
    if (options.no_python) return launch::TargetKind::kProgram;
    if (options.module || options.target.ends_with(".py")) return launch::TargetKind::kPython;
    return launch::TargetKind::kProgram;
}

RunOptions parse_run_options(std::span<const std::string> arguments, std::string_view command) {
    return Parser(arguments, command).parse();
}

std::string run_options_help() {
    std::string text =
        "usage: dslaunch [run] [options] TARGET [arguments]\n\n"
        "TARGET is a TorchScript model (train.pt: one dsworker per slot trains it), a Python "
        "script (python3 -u\n"
        "TARGET --local_rank=N), or any program. Options come before TARGET; after a .pt they may "
        "follow too.\n"
        "In names `-` and `_` mean the same; values are written --name VALUE or --name=VALUE.\n";
    for (const auto& [group, title] : kTitles) {
        text += fmt::format("\n{}:\n", title);
        for (const OptionRow& row : option_rows()) {
            if (row.group != group) continue;
            text += usage_of(row);
            append_wrapped(text, row.help);
        }
    }
    return text;
}

}  // namespace dslaunch::launcher
