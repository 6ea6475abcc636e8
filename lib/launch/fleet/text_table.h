// A table for people: columns as wide as their widest cell, two blanks between. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::launch {

// ROWS: the first is the head; all have as many cells. No blanks at the ends of lines, which end
// with newlines. Cells are printed as they are.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace dslaunch::launch
