#include "runtime/data/column_match.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::runtime {
namespace {

std::string listed(std::span<const std::string> names) {
    constexpr size_t kNamesMax = 8;
    std::vector<std::string> shown;
    for (const std::string& name : names.first(std::min(names.size(), kNamesMax)))
        shown.push_back(name.empty() ? "(the loss's target)" : printable(name));
    if (names.size() > kNamesMax)
        shown.push_back(fmt::format("and {} more", names.size() - kNamesMax));
    return shown.empty() ? "none" : join(shown, ", ");
}

std::optional<size_t> find_name(std::span<const std::string> names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return static_cast<size_t>(found - names.begin());
}

std::string did_you_mean(const std::string& name, std::span<const std::string> names) {
    const auto near = nearest(name, names);
    return near ? fmt::format(" (did you mean '{}'?)", printable(*near)) : "";
}

std::string both(const ColumnMatch& match) {
    return fmt::format("the file has the columns {}; forward takes the arguments {}{}",
                       listed(match.columns), listed(match.arguments),
                       match.has_target && !match.arguments.back().empty()
                           ? " (the last is the loss target)"
                           : "");
}

void check_chosen(const ColumnMatch& match) {
    for (const auto& [argument, column] : match.chosen) {
        if (!find_name(match.arguments, argument))
            fail(ExitCode::kInput,
                 "{}: dslaunch.data.columns names '{}', which is not an argument of forward{}: {}",
                 match.path, printable(argument), did_you_mean(argument, match.arguments),
                 both(match));
        if (!find_name(match.columns, column))
            fail(ExitCode::kInput,
                 "{}: dslaunch.data.columns.{} names '{}', which is not a column of the file{}: {}",
                 match.path, printable(argument), printable(column),
                 did_you_mean(column, match.columns), both(match));
    }
}

// Returns the columns that are not assigned to an argument.
std::vector<size_t> columns_left(const ColumnMatch& match,
                                 std::span<const std::optional<size_t>> column_of) {
    std::vector<size_t> left;
    for (size_t column = 0; column < match.columns.size(); ++column)
        if (match.columns[column] != match.spare &&
            std::find(column_of.begin(), column_of.end(), column) == column_of.end())
            left.push_back(column);
    return left;
}

std::vector<std::string> names_of(const ColumnMatch& match, std::span<const size_t> columns) {
    std::vector<std::string> names;
    for (const size_t column : columns) names.push_back(match.columns[column]);
    return names;
}

// Returns the options that name a column for each argument and for the loss's target. A column that
// is not known is called COLUMN.
std::string naming_options(const ColumnMatch& match,
                           std::span<const std::optional<size_t>> column_of) {
    std::string options;
    for (size_t i = 0; i < match.arguments.size(); ++i) {
        const std::string column =
            column_of[i] ? printable(match.columns[*column_of[i]]) : "COLUMN";
        const bool is_unnamed = match.arguments[i].empty();
        if (is_unnamed) options += fmt::format(" --set dslaunch.loss.target={}", column);
        options += fmt::format(" --set dslaunch.data.columns.{}={}",
                               is_unnamed ? column : printable(match.arguments[i]), column);
    }
    return options;
}

[[noreturn]] void fail_leftover(const ColumnMatch& match, std::span<const size_t> columns,
                                std::span<const size_t> arguments,
                                std::span<const std::optional<size_t>> column_of) {
    if (arguments.empty())
        fail(ExitCode::kInput,
             "{}: each argument of forward has a column, but forward does not take {}. To ignore "
             "columns, name only the columns that forward takes:{}",
             match.path, listed(names_of(match, columns)), naming_options(match, column_of));
    if (find_name(match.columns, "input_ids") && find_name(match.columns, "labels") &&
        find_name(match.arguments, kTokensArgument) && find_name(match.arguments, kTargetsArgument))
        fail(ExitCode::kInput,
             "{}: has the columns input_ids and labels, but forward takes tokens and targets: {}",
             match.path, kShiftAdvice);
    std::vector<std::string> argument_names;
    for (const size_t argument : arguments) argument_names.push_back(match.arguments[argument]);
    fail(ExitCode::kInput,
         "{}: the columns do not match the arguments of forward. Unmatched: columns {}; arguments "
         "{}. {}. Say which column feeds which argument (dslaunch.data.columns):{}",
         match.path, listed(names_of(match, columns)), listed(argument_names), both(match),
         naming_options(match, column_of));
}

// Returns the only column of LEFT that has a possible type for the loss's target. Throws
// Error{kInput} if there is no such column, or if there are several.
size_t target_column(const ColumnMatch& match, const std::vector<size_t>& left) {
    std::vector<size_t> fitting;
    std::copy_if(left.begin(), left.end(), std::back_inserter(fitting),
                 [&](size_t column) { return match.target_types[column]; });
    if (fitting.size() == 1) return fitting.front();
    const std::string found =
        left.empty() ? "no column is left"
        : fitting.empty()
            ? fmt::format("the remaining columns ({}) contain no {}", listed(names_of(match, left)),
                          match.target_type)
            : fmt::format("{} of the remaining columns contain {}: {}", fitting.size(),
                          match.target_type, listed(names_of(match, fitting)));
    fail(
        ExitCode::kInput,
        "{}: dslaunch.loss.target does not say which column contains the target of the loss, and "
        "{}. Name the column, for example with --set dslaunch.loss.target={}: {}{}",
        match.path, found,
        left.empty() ? "COLUMN" : printable(match.columns[(fitting.empty() ? left : fitting)[0]]),
        both(match),
        left.empty() ? "; if forward returns the loss itself, remove --loss or dslaunch.loss" : "");
}

}  // namespace

std::vector<size_t> match_columns(const ColumnMatch& match) {
    check_chosen(match);
    const size_t arguments = match.arguments.size();
    std::vector<std::optional<size_t>> column_of(arguments);
    std::vector<size_t> without;
    for (size_t i = 0; i < arguments; ++i) {
        const auto chosen = match.chosen.find(match.arguments[i]);
        column_of[i] = find_name(
            match.columns, chosen == match.chosen.end() ? match.arguments[i] : chosen->second);
        if (!column_of[i]) without.push_back(i);
    }
    const bool names_target = match.has_target && !match.arguments.back().empty();
    if (names_target && !column_of.back())
        fail(ExitCode::kInput,
             "{}: there is no column '{}', which dslaunch.loss.target names{}: {}", match.path,
             printable(match.arguments.back()), did_you_mean(match.arguments.back(), match.columns),
             both(match));
    std::vector<size_t> left = columns_left(match, column_of);
    const bool one_pair = left.size() == 1 && without.size() == 1;
    if (match.has_target && !column_of.back() && !one_pair) {
        column_of.back() = target_column(match, left);
        without.pop_back();
        std::erase(left, *column_of.back());
    }
    if (left.size() == 1 && without.size() == 1) {
        column_of[without.front()] = left.front();
    } else if (!without.empty() || (!left.empty() && match.chosen.size() != arguments)) {
        fail_leftover(match, left, without, column_of);
    }
    std::vector<size_t> columns;
    for (const auto& column : column_of) columns.push_back(*column);
    return columns;
}

}  // namespace dslaunch::runtime
