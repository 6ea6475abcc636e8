#include "base/text/text_table.h"

#include <algorithm>
#include <utility>

#include "base/screen.h"

namespace dslaunch {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kBetween = 2;

std::string padded(const std::string& cell, size_t width, bool is_right) {
    const std::string blanks(width - columns_of(cell), ' ');
    return is_right ? blanks + cell : cell + blanks;
}

// Returns the table of all ROWS with only the columns in CHOSEN.
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

// Divides the columns into parts, and returns the columns of each part. Every part begins with the
// first column. A part is wider than LIMIT only if even two columns do not fit.
std::vector<std::vector<size_t>> parts_within(const std::vector<size_t>& widths, size_t limit) {
    std::vector<std::vector<size_t>> parts(1);
    size_t width = 0;
    for (size_t column = 0; column < widths.size(); ++column) {
        if (parts.back().size() > 1 && width + kBetween + widths[column] > limit) {
            parts.push_back({0});
            width = widths[0];
        }
        width += widths[column] + (parts.back().empty() ? 0 : kBetween);
        parts.back().push_back(column);
    }
    return parts;
}

}  // namespace

std::string text_table(const Rows& rows, const TableForm& form) {
    std::vector<size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
    }
    auto parts = parts_within(widths, form.width > 0 ? form.width : std::string::npos);
    // Lowers the limit while the number of parts stays the same, because parts of similar width are
    // easier to read than a narrow last part.
    for (size_t limit = form.width; limit > 0 && parts.size() > 1; --limit) {
        auto narrower = parts_within(widths, limit - 1);
        if (narrower.size() > parts.size()) break;
        parts = std::move(narrower);
    }
    std::string text;
    for (const std::vector<size_t>& chosen : parts)
        text += (text.empty() ? "" : "\n") + chosen_columns(rows, widths, chosen, form.align);
    return text;
}

}  // namespace dslaunch
