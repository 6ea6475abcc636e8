// One row for each option of `dslaunch run`: how it is written, what it does, what its help says.
// Read by the parser and by the help text, so neither can know an option that the other does not.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

enum class Takes { kNothing, kValue, kOptionalValue };
enum class Group { kHosts, kTarget, kTraining, kEnvironment, kReport, kTorchrun, kRefused };

struct OptionRow {
    std::string_view names;  // "hostfile,H": long ones with `-`, short ones of one letter; the
                             // first is canonical
    Takes takes = Takes::kNothing;
    Group group = Group::kHosts;
    std::string_view value_name;
    std::string_view help;  // of a refused one: the reason, and what to do instead
    // REQUIRES: not null unless refused. Throws Error{kUsage} whose message goes after "--NAME: ".
    void (*apply)(RunOptions& options, const std::string& value) = nullptr;
    bool repeatable = false;
};

[[nodiscard]] std::span<const OptionRow> option_rows();

}  // namespace dslaunch::launcher
