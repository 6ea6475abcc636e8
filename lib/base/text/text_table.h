// A table for people: columns as wide as their widest cell, two blanks between. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct TableForm {
    std::string_view align = "";  // "<>>": a letter for each column; those without one are left
    // Columns that do not fit go into further tables below, each with the first column again.
    size_t width = 0;  // 0: without limit
};

// Returns ROWS as a table. The first row is the head; the others have at most as many cells. Lines
// have no blanks at their ends and end with newlines. Cells are printed as they are.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows,
                                     const TableForm& form = {});

}  // namespace dslaunch
