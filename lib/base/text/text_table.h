// A table for people: each column is as wide as its widest cell, with two blanks between columns.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// The alignment and the width of a table.
struct TableForm {
    std::string_view align = "";  // "<>>": a sign for each column; columns without one: left
    // Columns that do not fit go into further tables below, each of which repeats the first column.
    size_t width = 0;  // no limit if 0
};

// Returns ROWS as a table. The first row is the head; no other row has more cells. Lines end with
// newlines and have no trailing blanks. Cells are printed as they are.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows,
                                     const TableForm& form = {});

}  // namespace dslaunch
