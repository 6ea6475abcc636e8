#include "base/text/text_table.h"

#include <algorithm>

#include "base/text/columns.h"

namespace dslaunch {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kBetween = 2;

std::string padded(const std::string& cell, size_t width, bool is_right) {
    const std::string blanks(width - columns_of(cell), ' ');
    return is_right ? blanks + cell : cell + blanks;
}

// The columns CHOSEN of all ROWS.
std::string chosen_columns(const Rows& rows, const std::vector<size_t>& widths,
                           const std::vector<size_t>& chosen, std::string_view align) {
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (const size_t column : chosen) {
            if (column >= row.size()) continue;
            const bool is_right = column < align.size() && align[column] == '>';
            if (!line.empty()) line += std::string(kBetween, ' ');
            line += padded(row[column], widths[column], is_right);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

}  // namespace

std::string text_table(const Rows& rows, const TableForm& form) {
    std::vector<size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
    }
    std::string text;
    std::vector<size_t> chosen;
    size_t width = 0;
    for (size_t column = 0; column < widths.size(); ++column) {
        const size_t more = widths[column] + (chosen.empty() ? 0 : kBetween);
        if (form.width > 0 && chosen.size() > 1 && width + more > form.width) {
            text += chosen_columns(rows, widths, chosen, form.align) + '\n';
            chosen = {0};
            width = widths[0];
        }
        chosen.push_back(column);
        width += widths[column] + (chosen.size() == 1 ? 0 : kBetween);
    }
    return text + chosen_columns(rows, widths, chosen, form.align);
}

}  // namespace dslaunch
