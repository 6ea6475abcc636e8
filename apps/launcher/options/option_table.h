// One row for each option of `dslaunch run`, with its group in the help. The commands that work on
// hosts use some of the rows too (launcher/hosts/host_command.h).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// The groups of options in the help, in their order.
enum class Group { kTraining, kReport, kHosts, kTarget, kEnvironment, kTorchrun, kRefused };

// An option of `run`. The members have the same meaning as in Option, except APPLY, which writes
// the value to OPTIONS. APPLY is null if the option is refused.
struct OptionRow {
    std::string_view names;
    Group group = Group::kHosts;
    std::string_view value_name;
    std::string_view help;
    void (*apply)(RunOptions& options, const std::string& value) = nullptr;
    bool repeatable = false;
    bool may_be_empty = false;
    std::string_view choices = "";  // see Option
};

// Returns all rows, in the order of the help within each group.
[[nodiscard]] std::span<const OptionRow> option_rows();

// Returns the row of `run` whose full name is WORD, with its dashes and perhaps `=VALUE`; null if
// there is none.
[[nodiscard]] const OptionRow* find_option_row(const std::string& word);

// Returns the title of GROUP in the help.
[[nodiscard]] std::string_view group_title(Group group);

// Returns options for the rows that IS_TAKEN chooses. The options write to INTO, which must outlive
// them.
[[nodiscard]] std::vector<Option> run_rows(RunOptions& into,
                                           const std::function<bool(const OptionRow&)>& is_taken);

}  // namespace dslaunch::launcher
